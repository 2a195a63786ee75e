"""A run of which this process is one rank, started by another launcher: mpirun, torchrun, srun.

    mpirun -n 4 unisono train

The one idea: rank 0 decides what all go on from, writes the run directory and speaks; what fails there ends all, and
whoever fails alone ends the others, which would wait for it.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import numpy as np

from unisono.cli.beginning import check_nodes, look, refuse_faults
from unisono.cli.ending import good_bye
from unisono.cli.recorder import Recorder
from unisono.cli.watching import live_page
from unisono.comm.base import DEFAULT_TIMEOUT_S, Communicator
from unisono.comm.node import cores_together, node_colour
from unisono.comm.roll_call import Join
from unisono.comm.telling import all_told, told
from unisono.data.sharing import load_once
from unisono.errors import CommError, NodeLost, OtherFailed, RankLost, UnisonoError, UserError
from unisono.launch.connect import connect
from unisono.launch.placement import Placement
from unisono.limits import as_shortage
from unisono.recipe import Recipe
from unisono.resources import count_together
from unisono.strategies.devices import local_ranks
from unisono.strategies.peers import PEERS, devices_of, transport_of
from unisono.strategies.wire import wire_notes
from unisono.terminal import print
from unisono.train.alike import check_same_code, check_same_data, check_same_run, facts_of, unlike
from unisono.train.job import Job, load_data, prepare
from unisono.train.precision_trial import precision_notes
from unisono.train.rescuing import Refuge
from unisono.train.resuming import SNAPSHOTS
from unisono.train.saving import check_snapshot
from unisono.train.snapshots.finding import Snapshot
from unisono.train.team import Halted, Places
from unisono.train.unwatched import Origin, train_unwatched
from unisono.train.watching import NodeEnergy
from unisono.trust import ANY, Trust, refusal
from unisono.world import World


def as_rank(
    recipe: Recipe,
    placement: Placement,
    join: Join,
    notes: Sequence[str],
    beside: ExitStack | None,
    trust: Trust = ANY,
) -> dict[str, Any] | None:
    """The run, to the end; its summary, on rank 0. notes: to be said before it starts. beside: for a live page. trust:
    which of its code may run."""
    transport = recipe.transport
    if transport == "auto" and recipe.strategy in PEERS and placement.local_size == placement.size:
        transport = "shm"  # for losses and scores: over gloo they would slow down whoever is to be compared
    with connect(placement, transport, DEFAULT_TIMEOUT_S, join) as comm, _nobody_left_waiting(comm):
        try:
            facts = all_told(comm, facts_of(recipe))
            check_same_run(facts, "rank")
            begun = _begin(comm, replace(recipe, ranks=comm.size), placement.restarts, trust)
            if begun is None:
                return None
            job, origin, again = begun
            check_same_code(facts, all_told(comm, job.code_sha256), "model", "rank")
            nodes = comm.all_gather(np.array([node_colour(comm)]))[:, 0].tolist()
            if len(set(nodes)) > 1:
                first = nodes.index(nodes[comm.rank]) == comm.rank
                check_same_data(facts, all_told(comm, job.all_data_sha256 if first else ""), "rank")
            neighbours = [rank for rank, node in enumerate(nodes) if node == nodes[comm.rank]]
            count_together(cores_together(comm, neighbours))
            moves, devices = transport_of(job.recipe, comm.transport), devices_of(job.recipe, local_ranks(nodes))
            record = _recorder(comm, lambda: Recorder(job, moves, None, origin.snapshot, devices, anew=again))
            refuge = told(comm, lambda: record and [str(record.path.resolve()), record.token])
            energy = NodeEnergy(comm, nodes, devices, job.recipe.watts_per_core)
            pids = comm.all_gather(np.array([os.getpid()]))[:, 0].tolist()
        except UserError:
            if comm.rank == 0:
                raise
            sys.exit(2)  # the same mistake on every rank: the first one says it
        try:
            if record is None:  # only the first rank writes
                places = Places(refuge=Refuge(*refuge))
                train_unwatched(World(comm), job, places, origin, on_tick=energy.tick)
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
        except OtherFailed as error:
            _leave(comm, error.exit_code, str(error) if error.first_hand else "")


@contextmanager
def _nobody_left_waiting(comm: Communicator) -> Iterator[None]:
    """Whoever fails alone ends the others, which would wait for it; MPI, too, could not end in order."""
    try:
        yield
    except BaseException as error:
        shared = isinstance(error, (UnisonoError, SystemExit)) and not isinstance(error, CommError)
        if not shared:  # what all ranks find out alike (a mistake, a loss that is no number) all leave with
            comm.desert(as_shortage(error) or error)
        raise


def _leave_stranded(comm: Communicator, halted: Halted) -> NoReturn:
    """Without the others, some of which are no more. One rank of each machine says why."""
    cause, told = halted.__cause__, ""
    if isinstance(cause, NodeLost) and cause.first_hand:
        kept = comm.rank == 0 or halted.snapshot or halted.trouble
        told = str(halted) if kept else good_bye(halted.outcome)
    elif isinstance(cause, RankLost):
        told = str(halted if comm.rank == 0 else cause)
    _leave(comm, halted.exit_code, told)


def _leave(comm: Communicator, exit_code: int, why: str) -> NoReturn:
    if why:
        print(f"unisono: {why}", file=sys.stderr, flush=True)
    leaving = SystemExit(exit_code)
    comm.desert(leaving)
    raise leaving


def _begin(comm: Communicator, recipe: Recipe, restarts: int, trust: Trust = ANY) -> tuple[Job, Origin, bool] | None:
    """Where the run begins; whether from the beginning, in its old directory. None: there is nothing left to do."""
    found: list[Snapshot] = []
    seen = told(comm, lambda: look(recipe, restarts, found))
    if not seen:
        return None
    recipe = replace(recipe, **seen["changed"])
    _check_trust(comm, recipe, trust)
    check_layout(comm, recipe)
    if recipe.strategy == "local" and recipe.allreduce != "arena":
        refuse_faults(recipe)  # what makes up its state is in many places
    job = prepare(recipe, load_once(comm, lambda: load_data(recipe)))
    told(comm, lambda: check_snapshot(job, found[0]) if found else None)
    return job, Origin(seen["position"], found[0] if found else None), seen["anew"]


def _check_trust(comm: Communicator, recipe: Recipe, trust: Trust) -> None:
    """Refuses code that a rank finds where it needs trust; on all of them. Nobody is asked: ranks have no terminal."""
    if doubts := next(filter(None, all_told(comm, [] if trust.trusted else trust.doubts(recipe))), None):
        raise refusal(doubts)


def check_layout(comm: Communicator, recipe: Recipe) -> None:
    """Refuses what ranks on several nodes cannot do; on all of them."""
    check_nodes(recipe, len(np.unique(comm.all_gather(np.array([node_colour(comm)])))))
    if recipe.wire == "bf16" and recipe.allreduce == "native" and comm.transport == "mpi":
        raise UserError(
            "--wire bf16 with --allreduce native: MPI cannot add up such numbers", hint="use --allreduce ring"
        )


def _recorder(comm: Communicator, make: Callable[[], Recorder]) -> Recorder | None:
    """What `make` gives on rank 0, None elsewhere; if it fails there, everybody leaves."""
    made: list[Recorder] = []
    told(comm, lambda: made.append(make()))
    return made[0] if made else None
