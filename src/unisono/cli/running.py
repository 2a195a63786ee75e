"""A run: one recipe from start to verdict, as the parent of its ranks or as one of them.

    run_recipe(Recipe(ranks=4))

The one idea: whoever writes the run directory and the terminal is one process: the parent, or rank 0 where another
launcher (mpirun, torchrun, srun) started the ranks. The others are silent.
"""

import os
import platform
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from unisono.cli.recorder import Recorder
from unisono.comm.base import DEFAULT_TIMEOUT_S, Communicator
from unisono.comm.node import node_colour
from unisono.comm.telling import told
from unisono.data.sharing import load_once
from unisono.errors import RankFailed, RankLost, UnisonoError, UserError
from unisono.launch.connect import connect, connect_gloo, require
from unisono.launch.environments import detect
from unisono.launch.local import run
from unisono.launch.placement import Placement
from unisono.recipe import Recipe, option
from unisono.strategies.devices import local_ranks
from unisono.strategies.peers import PEERS, check_gpus, devices_of, transport_of, warm_up
from unisono.train.job import Job, load_data, prepare
from unisono.train.precision_trial import precision_notes
from unisono.train.resuming import SNAPSHOTS, Again, after_restart, as_saved, find_snapshot
from unisono.train.saving import check_data
from unisono.train.snapshots.finding import Snapshot
from unisono.train.team import Halted, Places, Team
from unisono.train.trainer import train as train_rank
from unisono.train.unwatched import Origin, train_unwatched
from unisono.train.watching import NodeEnergy
from unisono.world import World


def run_recipe(recipe: Recipe) -> dict[str, Any] | None:
    """Runs a recipe from start to verdict; the summary, on the process that writes it.

    Alone, this process starts the ranks. Started by mpirun, torchrun or srun, it is one of them.
    """
    placement = detect()
    return _as_parent(recipe, placement.restarts) if placement.size == 1 else _as_rank(recipe, placement)


def _as_parent(recipe: Recipe, restarts: int) -> dict[str, Any] | None:
    if recipe.transport == "mpi":
        raise UserError(
            "--transport mpi, but no MPI started this process",
            hint=f"mpirun -n {recipe.ranks} unisono train --transport mpi ...; or leave --transport out",
        )
    transport = "shm" if recipe.transport == "auto" else recipe.transport
    require(transport)
    again = _again(recipe, restarts)
    if again.finished:
        return None
    snapshot = find_snapshot(again.recipe)
    job = prepare(as_saved(again.recipe, snapshot))
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
            record.say(precision_notes(job))
            record.watch.meter.measure_idle()
            if team is not None:
                return _supervise(team, record)
            return _run_without_take_over(job, record, transport)
    except RankFailed as error:
        if error.report.startswith("Traceback"):
            raise
        kind = UserError if error.exit_code == 2 else UnisonoError
        kept = f"\nWhat was reached is in {record.path}" if record.path.exists() else ""
        raise kind(f"{error.report}{kept}") from None


def _again(recipe: Recipe, restarts: int) -> Again:
    """How the run goes on if a launcher has started it again; said."""
    again = after_restart(recipe, restarts)
    if again.told:
        print(again.told, flush=True)
    return again


def refuse_faults(recipe: Recipe) -> None:
    """Options that need the arena, or replicas that another launcher started."""
    for name in ("resume", "snapshot_every"):
        if getattr(recipe, name):
            raise UserError(
                f"{option(name)} with ranks that unisono train starts itself needs the arena they share",
                hint="leave out --transport, --allreduce and --strategy; or start it with mpirun or torchrun",
            )


def _supervise(team: Team, record: Recorder) -> dict[str, Any]:
    team.places = Places(record.weights, record.path / "snapshots", record.log)
    outcome = team.train(lambda rank, value: record.add(value), record.add_event, record.watch.tick)
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


def _as_rank(recipe: Recipe, placement: Placement) -> dict[str, Any] | None:
    transport = recipe.transport
    if transport == "auto" and recipe.strategy in PEERS and placement.local_size == placement.size:
        transport = "shm"  # for losses and scores: over gloo they would slow down whoever is to be compared
    with connect(placement, transport, DEFAULT_TIMEOUT_S) as comm:
        try:
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
                record.say(precision_notes(job))
                places = Places(record.weights, record.path / SNAPSHOTS)
                here = {rank: pid for rank, pid in enumerate(pids) if nodes[rank] == nodes[0]}
                tick = partial(record.watch.tick, here)
                found = train_unwatched(World(comm, record.add), job, places, origin, record.add_event, tick)
                record.watch.put_together(energy.gather())
                return record.finish(found | {"restarts": placement.restarts})
        except Halted as halted:
            if comm.rank == 0:
                print(f"unisono: {halted}", file=sys.stderr, flush=True)
            comm.barrier()  # launchers end everybody when the first one leaves: the first rank is to be done
            sys.exit(halted.exit_code)
        except RankLost as error:
            comm.desert(error)  # MPI could not end in order without the one that is lost
            raise


def _begin(comm: Communicator, recipe: Recipe, restarts: int) -> tuple[Job, Origin, bool] | None:
    """Where the run begins; whether from the beginning, in its old directory. None: there is nothing left to do."""
    found: list[Snapshot] = []

    def look() -> dict[str, Any]:
        again = _again(recipe, restarts)
        if again.finished:
            return {}
        snapshot = find_snapshot(again.recipe)
        found.extend([snapshot] if snapshot else [])
        saved = as_saved(again.recipe, snapshot)
        changed = {name: getattr(saved, name) for name in ("resume", "out", "allow_change", "shards", "engine")}
        return {"changed": changed, "anew": again.anew, "position": snapshot.position if snapshot else 0}

    seen = told(comm, look)
    if not seen:
        return None
    recipe = replace(recipe, **seen["changed"])
    check_layout(comm, recipe)
    if recipe.strategy == "async" or (recipe.strategy == "local" and recipe.allreduce != "arena"):
        refuse_faults(recipe)  # what makes up their state is in many places
    job = prepare(recipe, load_once(comm, lambda: load_data(recipe)))
    told(comm, lambda: check_data(job, found[0]) if found else None)
    return job, Origin(seen["position"], found[0] if found else None), seen["anew"]


def check_layout(comm: Communicator, recipe: Recipe) -> None:
    """Refuses the shared arena where ranks are on several nodes; on all of them."""
    nodes = len(np.unique(comm.all_gather(np.array([node_colour(comm)]))))
    if nodes > 1 and recipe.allreduce == "arena" and recipe.strategy in ("sync", "local"):
        raise UserError(
            f"--allreduce arena spans one node, and these {comm.size} ranks are on {nodes}",
            hint="use --allreduce native, or ring",
        )
    if recipe.wire == "bf16" and recipe.allreduce == "native" and comm.transport == "mpi":
        raise UserError(
            "--wire bf16 with --allreduce native: MPI cannot add up such numbers", hint="use --allreduce ring"
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
