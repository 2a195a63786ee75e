"""A run: one recipe from start to verdict, as the parent of its ranks or as one of them.

    run_recipe(Recipe(ranks=4))

The one idea: whoever writes the run directory and the terminal is one process: the parent, or rank 0 where another
launcher (mpirun, torchrun, srun) started the ranks. The others are silent.
"""

import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import numpy as np

from unisono.cli.recorder import Recorder
from unisono.cli.watching import live_page
from unisono.comm.base import DEFAULT_TIMEOUT_S, Communicator
from unisono.comm.node import node_colour
from unisono.comm.roll_call import Join
from unisono.comm.telling import all_told, told
from unisono.data.sharing import load_once
from unisono.errors import CommError, NodeLost, RankFailed, RankLost, UnisonoError, UserError
from unisono.launch.connect import connect, connect_gloo, require
from unisono.launch.environments import detect
from unisono.launch.local import run
from unisono.launch.nodes import NodeOptions
from unisono.launch.placement import Placement
from unisono.launch.slurm.supervisors import as_supervisor, step_facts
from unisono.recipe import Recipe, option
from unisono.strategies.devices import local_ranks
from unisono.strategies.peers import PEERS, check_gpus, devices_of, transport_of, warm_up
from unisono.strategies.wire import wire_notes
from unisono.train.alike import check_alike, facts_of, unlike
from unisono.train.job import Job, load_data, prepare
from unisono.train.located import FILES
from unisono.train.precision_trial import precision_notes
from unisono.train.resuming import SNAPSHOTS, Again, after_restart, as_saved, find_snapshot
from unisono.train.saving import check_data
from unisono.train.snapshots.finding import Snapshot
from unisono.train.team import Halted, Places, Team
from unisono.train.trainer import train as train_rank
from unisono.train.unwatched import Origin, train_unwatched
from unisono.train.watching import NodeEnergy
from unisono.world import World

ONE_NODE = NodeOptions()


def run_recipe(
    recipe: Recipe, options: NodeOptions = ONE_NODE, asked_ranks: int = 0, *, watch: bool = False
) -> dict[str, Any] | None:
    """Runs a recipe from start to verdict; the summary, on the process that writes it. watch: with a live page.

    Alone, this process starts the ranks. Started by mpirun, torchrun or srun, it is one of them. With `options` of
    several machines it is the supervisor of one of them. asked_ranks: what the user gave on the command line.
    """
    placement = detect()
    with ExitStack() as pages:  # left after the run directory is complete
        beside = pages if watch else None
        here = as_supervisor(options, placement, step_facts(), recipe.threads)
        if here is not None and here.several:
            from unisono.cli.nodes import run_on_nodes

            return run_on_nodes(recipe, here, beside, placement.restarts)
        if options.several:
            if placement.source != "alone":
                raise UserError(
                    f"--num-nodes {options.num_nodes}, but {placement.source} started this as one of {placement.size}",
                    hint=f"leave --num-nodes, --node-id and --main-address out: {placement.source} says who is where",
                )
            from unisono.cli.nodes import run_on_nodes

            return run_on_nodes(recipe, options, beside)
        if placement.size == 1:
            recipe = replace(recipe, ranks=options.ranks_per_node or recipe.ranks)
            return _as_parent(recipe, placement.restarts, beside)
        note = f"Note: --ranks {asked_ranks} has no effect: {placement.source} started {placement.size} ranks."
        notes = [note] if asked_ranks not in (0, placement.size) else []
        join = Join(interface=options.interface, timeout_s=options.join_timeout)
        return _as_rank(recipe, placement, join, notes, beside)


def _as_parent(recipe: Recipe, restarts: int, beside: ExitStack | None) -> dict[str, Any] | None:
    if recipe.transport == "mpi":
        raise UserError(
            "--transport mpi, but no MPI started this process",
            hint=f"mpirun -n {recipe.ranks} unisono train --transport mpi ...; or leave --transport out",
        )
    transport = "shm" if recipe.transport == "auto" else recipe.transport
    require(transport)
    again = go_on(recipe, restarts)
    if again.finished:
        return None
    snapshot = find_snapshot(again.recipe)
    job = prepare(_as_saved(again.recipe, snapshot))
    check_gpus(job.recipe)
    devices = devices_of(job.recipe, range(job.recipe.ranks))
    watched = job.recipe.allreduce == "arena" and transport == "shm"
    if not watched:
        refuse_faults(job.recipe)
    team = Team(job, Places()) if watched else None
    if team is not None and snapshot is not None:
        team.resume(snapshot)  # before anything in the run directory is touched
    try:
        moves = transport_of(job.recipe, transport)
        with Recorder(job, moves, [platform.node()], snapshot, devices, anew=again.anew) as record:
            if beside is not None:
                beside.enter_context(live_page(record.path))
            record.say([*job.notes, *precision_notes(job), *wire_notes(job.recipe, 1)])
            record.watch.meter.measure_idle()
            if team is not None:
                return _supervise(team, record)
            return _run_without_take_over(job, record, transport)
    except RankFailed as error:
        raise fail_of(error, record) from None


def fail_of(error: RankFailed, record: Recorder | None) -> Exception:
    """What the user is told of it."""
    if error.report.startswith("Traceback"):
        return error
    kind = UserError if error.exit_code == 2 else UnisonoError
    kept = f"\nWhat was reached is in {record.path}" if record is not None and record.path.exists() else ""
    # What a rank has to say speaks for all; of one that died without a word its number is all there is to know.
    return kind(f"{error.report if error.kind else error}{kept}")


def go_on(recipe: Recipe, restarts: int) -> Again:
    """How the run goes on if a launcher has started it again; said."""
    again = after_restart(recipe, restarts)
    if again.told:
        print(again.told, flush=True)
    return again


def _as_saved(recipe: Recipe, snapshot: Snapshot | None) -> Recipe:
    """As the snapshot has it; which files are taken from elsewhere is said."""
    saved = as_saved(recipe, snapshot)
    for name in FILES:
        if getattr(saved, name) != getattr(recipe, name):
            print(f"{option(name)} {getattr(recipe, name)} is not here: taken from {getattr(saved, name)}", flush=True)
    return saved


def refuse_faults(recipe: Recipe) -> None:
    """Options that need the arena, or replicas that another launcher started."""
    for name in ("resume", "snapshot_every"):
        if getattr(recipe, name):
            raise UserError(
                f"{option(name)} needs the arena that ranks started by unisono train share",
                hint=f"leave --transport out: unisono train --ranks {recipe.ranks}; or start it with mpirun or torchrun"
                if recipe.strategy == "async"
                else "leave out --transport, --allreduce and --strategy; or start it with mpirun or torchrun",
            )


def _supervise(team: Team, record: Recorder) -> dict[str, Any]:
    team.places = Places(record.weights, record.path / "snapshots", record.log)
    outcome = team.train(lambda rank, value: record.add(value), record.add_event, on_tick=record.watch.tick)
    found: dict[str, Any] = next(result for result in outcome.results.values() if result)
    return record.finish(found | {"takeovers": outcome.takeovers, "restarts": outcome.restarts})


def _run_without_take_over(job: Job, record: Recorder, transport: str) -> dict[str, Any]:
    def work(world: World) -> dict[str, Any]:
        world.report({"process": [world.rank, os.getpid()]})
        if transport == "shm":
            return train_rank(world, job, record.weights)
        with World(connect_gloo(world.comm), world.report) as over_gloo:
            return train_rank(over_gloo, job, record.weights)

    warm_up(job.recipe)
    return record.finish(run(work, job.recipe.ranks, on_report=lambda rank, value: record.add(value))[0])


def _as_rank(
    recipe: Recipe, placement: Placement, join: Join, notes: Sequence[str], beside: ExitStack | None
) -> dict[str, Any] | None:
    transport = recipe.transport
    if transport == "auto" and recipe.strategy in PEERS and placement.local_size == placement.size:
        transport = "shm"  # for losses and scores: over gloo they would slow down whoever is to be compared
    with connect(placement, transport, DEFAULT_TIMEOUT_S, join) as comm, _nobody_left_waiting(comm):
        try:
            facts = all_told(comm, facts_of(recipe))
            check_alike(facts, "rank")
            begun = _begin(comm, replace(recipe, ranks=comm.size), placement.restarts)
            if begun is None:
                return None
            job, origin, again = begun
            nodes = comm.all_gather(np.array([node_colour(comm)]))[:, 0].tolist()
            moves, devices = transport_of(job.recipe, comm.transport), devices_of(job.recipe, local_ranks(nodes))
            record = tell_all(comm, lambda: Recorder(job, moves, None, origin.snapshot, devices, anew=again))
            energy = NodeEnergy(comm, nodes, devices, job.recipe.watts_per_core)
            pids = comm.all_gather(np.array([os.getpid()]))[:, 0].tolist()
        except UserError:
            if comm.rank == 0:
                raise
            sys.exit(2)  # the same mistake on every rank: the first one says it
        try:
            if record is None:  # only the first rank writes
                train_unwatched(World(comm), job, Places(), origin, on_tick=energy.tick)
                energy.gather()
                return None
            with record:
                if beside is not None:
                    beside.enter_context(live_page(record.path))
                record.say([*notes, *job.notes, *precision_notes(job)])
                record.say([*wire_notes(job.recipe, len(set(nodes))), *unlike(facts, "rank")])
                places = Places(record.weights, record.path / SNAPSHOTS)
                here = {rank: pid for rank, pid in enumerate(pids) if nodes[rank] == nodes[0]}
                tick = partial(record.watch.tick, here)
                found = train_unwatched(World(comm, record.add), job, places, origin, record.add_event, tick)
                record.watch.put_together(energy.gather(), energy.others_cores)
                return record.finish(found | {"restarts": placement.restarts})
        except Halted as halted:
            if halted.outcome.lost:
                _leave_stranded(comm, halted)
            if comm.rank == 0:
                print(f"unisono: {halted}", file=sys.stderr, flush=True)
            comm.barrier()  # launchers end everybody when the first one leaves: the first rank is to be done
            sys.exit(halted.exit_code)


@contextmanager
def _nobody_left_waiting(comm: Communicator) -> Iterator[None]:
    """Whoever fails alone ends the others, which would wait for it; MPI, too, could not end in order."""
    try:
        yield
    except BaseException as error:
        shared = isinstance(error, (UnisonoError, SystemExit)) and not isinstance(error, CommError)
        if not shared:  # what all ranks find out alike (a mistake, a loss that is no number) all leave with
            comm.desert(error)
        raise


def _leave_stranded(comm: Communicator, halted: Halted) -> NoReturn:
    """Without the others, some of which are no more. One rank of each machine says why."""
    cause = halted.__cause__
    if isinstance(cause, NodeLost) and cause.first_hand:
        print(f"unisono: {halted}", file=sys.stderr, flush=True)
    elif isinstance(cause, RankLost):
        print(f"unisono: {halted if comm.rank == 0 else cause}", file=sys.stderr, flush=True)
    leaving = SystemExit(halted.exit_code)
    comm.desert(leaving)
    raise leaving


def _begin(comm: Communicator, recipe: Recipe, restarts: int) -> tuple[Job, Origin, bool] | None:
    """Where the run begins; whether from the beginning, in its old directory. None: there is nothing left to do."""
    found: list[Snapshot] = []

    def look() -> dict[str, Any]:
        again = go_on(recipe, restarts)
        if again.finished:
            return {}
        snapshot = find_snapshot(again.recipe)
        found.extend([snapshot] if snapshot else [])
        saved = _as_saved(again.recipe, snapshot)
        names = ("resume", "out", "allow_change", "shards", "engine", *FILES)
        changed = {name: getattr(saved, name) for name in names}
        return {"changed": changed, "anew": again.anew, "position": snapshot.position if snapshot else 0}

    seen = told(comm, look)
    if not seen:
        return None
    recipe = replace(recipe, **seen["changed"])
    check_layout(comm, recipe)
    if recipe.strategy == "local" and recipe.allreduce != "arena":
        refuse_faults(recipe)  # what makes up its state is in many places
    job = prepare(recipe, load_once(comm, lambda: load_data(recipe)))
    told(comm, lambda: check_data(job, found[0]) if found else None)
    return job, Origin(seen["position"], found[0] if found else None), seen["anew"]


def check_layout(comm: Communicator, recipe: Recipe) -> None:
    """Refuses what ranks on several nodes cannot do; on all of them."""
    check_nodes(recipe, len(np.unique(comm.all_gather(np.array([node_colour(comm)])))))
    if recipe.wire == "bf16" and recipe.allreduce == "native" and comm.transport == "mpi":
        raise UserError(
            "--wire bf16 with --allreduce native: MPI cannot add up such numbers", hint="use --allreduce ring"
        )


def check_nodes(recipe: Recipe, nodes: int) -> None:
    """Refuses what cannot be done across nodes."""
    if nodes > 1 and recipe.sync_batchnorm:
        raise UserError(
            f"--sync-batchnorm exchanges statistics in shared memory, and these ranks are on {nodes} nodes",
            hint="leave it out, or use the ranks of one node",
        )
    if nodes > 1 and recipe.strategy == "local" and (recipe.resume or recipe.snapshot_every):
        raise UserError(
            f"snapshots of --strategy local on {nodes} nodes: each has the states of its own replicas only",
            hint="leave --resume and --snapshot-every out, or use the ranks of one node",
        )


def tell_all(comm: Communicator, make: Callable[[], Recorder]) -> Recorder | None:
    """What `make` gives on rank 0, None elsewhere; if it fails there, everybody leaves."""
    failure = made = None
    if comm.rank == 0:
        try:
            made = make()
        except UnisonoError as error:
            failure = error
    failed = np.array([int(failure is not None)])
    comm.broadcast(failed)
    if failure is not None:
        raise failure
    if failed[0]:
        sys.exit(2)  # rank 0 says why
    return made
