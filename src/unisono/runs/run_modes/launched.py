"""LaunchedMode: this process is one rank, started by another launcher: mpirun, torchrun, srun.

    mpirun -n 4 unisono train

The one idea: rank 0 decides where all start, writes the run directory and the terminal. What fails there ends all, and
a rank that fails alone ends the others, which would wait for it.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, final

import numpy as np

from unisono.comm.base import DEFAULT_TIMEOUT_S, Communicator
from unisono.comm.broadcast_object import broadcast_object, gather_objects
from unisono.comm.topology.rendezvous import RendezvousOptions
from unisono.comm.topology.shared_machine import node_colour, shared_cores
from unisono.data.shared_dataset import load_once
from unisono.environment.process_rank import Placement
from unisono.errors import CommError, NodeLost, OtherFailed, RankLost, UnisonoError, UserError
from unisono.launch.connect import connect
from unisono.os_limits import as_shortage
from unisono.recipe import Recipe
from unisono.resources import count_together
from unisono.runs.early_end import Halted, stop_message
from unisono.runs.energy_monitor import NodeEnergy
from unisono.runs.launched_training import Origin, train_launched
from unisono.runs.recorder import Recorder
from unisono.runs.run_modes.base import Allocation, RunMode, Value, check_nodes, refuse_snapshots
from unisono.runs.snapshots.failover import FailoverPlace
from unisono.runs.snapshots.saver import check_snapshot
from unisono.runs.supervised_training import RunPlaces
from unisono.safe_print import print
from unisono.storage.resume import SNAPSHOTS
from unisono.storage.snapshots.snapshot import Snapshot
from unisono.strategies.external.device_assignment import local_ranks
from unisono.strategies.registry import find, of
from unisono.training.consistency import check_same_code, check_same_data, check_same_run, differences_between, facts_of
from unisono.training.job import Job, load_data, prepare
from unisono.trust import Trust, refusal
from unisono.world import World


@final
class LaunchedMode(RunMode):
    """One rank of another launcher's."""

    def __init__(self, placement: Placement, join: RendezvousOptions, notes: Sequence[str] = ()) -> None:
        """notes: to be said before the run starts."""
        self._placement, self._join, self._notes = placement, join, notes
        self.restarts = placement.restarts
        self._training = False

    @contextmanager
    def connect(self, recipe: Recipe) -> Iterator[Recipe]:
        place, transport, spec = self._placement, recipe.strategy.transport, find(recipe.strategy.name)
        if transport == "auto" and spec is not None and spec.external and place.local_size == place.size:
            transport = "shm"  # for losses and scores: over gloo they would slow down whoever is to be compared
        connected = connect(place, transport, DEFAULT_TIMEOUT_S, self._join)
        with connected as comm, _abort_peers_on_error(comm), self._exit_together(comm):
            self._comm = comm
            self._facts = gather_objects(comm, facts_of(recipe))
            check_same_run(self._facts, "rank")
            yield recipe.with_options(ranks=comm.size)

    def from_first(self, find: Callable[[], Value]) -> Value:
        try:
            value: Value = broadcast_object(self._comm, find)
        except UnisonoError as error:
            error.shown |= self._comm.rank > 0 and not isinstance(error, CommError)  # rank 0 says it
            raise
        return value

    def prepare(self, recipe: Recipe, trust: Trust) -> Job:
        comm = self._comm
        _check_trust(comm, recipe, trust)
        check_layout(comm, recipe)
        if of(recipe).state_in_parts(1):
            refuse_snapshots(recipe)  # what makes up its state is in many places
        self._job = job = prepare(recipe, load_once(comm, lambda: load_data(recipe)))
        check_same_code(self._facts, gather_objects(comm, job.code_sha256), "model", "rank")
        self._nodes = nodes = comm.all_gather(np.array([node_colour(comm)]))[:, 0].tolist()
        if len(set(nodes)) > 1:
            first = nodes.index(nodes[comm.rank]) == comm.rank
            check_same_data(self._facts, gather_objects(comm, job.all_data_sha256 if first else ""), "rank")
        neighbours = [rank for rank, node in enumerate(nodes) if node == nodes[comm.rank]]
        count_together(shared_cores(comm, neighbours))
        return job

    def restore(self, position: int, snapshot: Snapshot | None) -> None:
        self.from_first(lambda: None if snapshot is None else check_snapshot(self._job, snapshot))
        self._origin = Origin(position, snapshot)

    def allocation(self) -> Allocation:
        recipe, nodes = self._job.recipe, self._nodes
        devices = self._job.spec.devices(recipe, local_ranks(nodes))
        notes = [*self._notes, *differences_between(self._facts, "rank")]
        return Allocation(self._job.spec.transport(recipe, self._comm.transport), None, devices, len(set(nodes)), notes)

    def train(self, record: Recorder | None, failover_place: FailoverPlace) -> dict[str, Any] | None:
        comm, job, nodes = self._comm, self._job, self._nodes
        devices = job.spec.devices(job.recipe, local_ranks(nodes))
        energy = NodeEnergy(comm, nodes, devices, job.recipe.output.watts_per_core)
        pids = comm.all_gather(np.array([os.getpid()]))[:, 0].tolist()
        self._training = True
        if record is None:  # only the first rank writes
            places = RunPlaces(failover_place=failover_place)
            train_launched(World(comm), job, places, self._origin, on_tick=energy.tick)
            energy.gather()
            return None
        places = RunPlaces(record.weights, record.path / SNAPSHOTS)
        here = {rank: pid for rank, pid in enumerate(pids) if nodes[rank] == nodes[0]}
        tick = partial(record.energy.tick, here)
        found = train_launched(World(comm, record.add), job, places, self._origin, record.add_event, tick)
        record.energy.set_node_readings(energy.gather(), energy.others_cores)
        return found | {"restarts": self._placement.restarts}

    @contextmanager
    def _exit_together(self, comm: Communicator) -> Iterator[None]:
        """What ends all ranks is said by one, and nobody leaves before that is done."""
        try:
            yield
        except UserError as error:
            error.shown |= comm.rank > 0 and not self._training  # the same mistake on every rank: the first one says it
            raise
        except Halted as halted:
            if halted.outcome.lost:
                _leave(comm, halted, _reason_to_leave(comm, halted))
            else:
                if comm.rank == 0:
                    print(f"unisono: {halted}", file=sys.stderr, flush=True)
                halted.shown = True
                comm.barrier()  # launchers end everybody when the first one leaves: the first rank is to be done
            raise
        except OtherFailed as error:
            _leave(comm, error, str(error) if error.first_hand else "")
            raise


@contextmanager
def _abort_peers_on_error(comm: Communicator) -> Iterator[None]:
    """Whoever fails alone ends the others, which would wait for it; MPI, too, could not end in order."""
    try:
        yield
    except BaseException as error:
        shared = isinstance(error, (UnisonoError, SystemExit)) and not isinstance(error, CommError)
        if not shared:  # what all ranks find out alike (a mistake, a loss that is no number) all leave with
            comm.abort_peers(as_shortage(error) or error)
        raise


def _reason_to_leave(comm: Communicator, halted: Halted) -> str:
    """What a rank says that leaves because others are no more. One rank of each machine says why."""
    cause = halted.__cause__
    if isinstance(cause, NodeLost) and cause.first_hand:
        kept = comm.rank == 0 or halted.snapshot or halted.trouble
        return str(halted) if kept else stop_message(halted.outcome)
    if isinstance(cause, RankLost):
        return str(halted if comm.rank == 0 else cause)
    return ""


def _leave(comm: Communicator, error: UnisonoError, why: str) -> None:
    """Says why, if there is something to say, and lets the others know that this rank leaves."""
    if why:
        print(f"unisono: {why}", file=sys.stderr, flush=True)
    error.shown = True
    comm.abort_peers(SystemExit(error.exit_code))


def _check_trust(comm: Communicator, recipe: Recipe, trust: Trust) -> None:
    """Refuses code that a rank finds where it needs trust; on all of them. Nobody is asked: ranks have no terminal."""
    if untrusted := next(filter(None, gather_objects(comm, [] if trust.trusted else trust.untrusted(recipe))), None):
        raise refusal(untrusted)


def check_layout(comm: Communicator, recipe: Recipe) -> None:
    """Refuses what ranks on several nodes cannot do; on all of them."""
    check_nodes(recipe, len(np.unique(comm.all_gather(np.array([node_colour(comm)])))))
    if recipe.strategy.wire == "bf16" and recipe.strategy.allreduce == "native" and comm.transport == "mpi":
        raise UserError(
            "--wire bf16 with --allreduce native: MPI cannot add up such numbers", hint="use --allreduce ring"
        )
