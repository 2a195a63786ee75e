"""RunMode: where the ranks of a run come from, and what `RunLifecycle` asks of that.

The one idea: the lifecycle of a run is the same everywhere. A run mode knows what differs: who connects the processes,
how they agree, who holds the state, and what runs the ranks. There are three: `SupervisedMode` (this process starts the
ranks), `LaunchedMode` (mpirun, torchrun or srun started this rank) and `MultiMachineMode` (one supervisor a machine).

`refuse_snapshots` and `check_nodes` are checks that several modes make.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar, final

from unisono.errors import UserError
from unisono.recipe import Recipe, flag
from unisono.runs.recorder import Recorder
from unisono.runs.snapshots.failover import FailoverPlace
from unisono.storage.snapshots.snapshot import Snapshot
from unisono.strategies.registry import of
from unisono.training.job import Job
from unisono.trust import Trust

Value = TypeVar("Value")


@final
@dataclass(frozen=True)
class Allocation:
    """What the ranks of a run have."""

    transport: str
    """What moves arrays between them."""
    hosts: Sequence[str] | None
    """The machine of each rank; None: not known before they report."""
    devices: Sequence[str] = ()
    """The device of each rank, where there is a choice."""
    machines: int = 1
    notes: Sequence[str] = ()
    """What the user should know about them."""


class RunMode(ABC):
    """What one process of a run is: the parent of the ranks, one rank, or the supervisor of one machine.

    `RunLifecycle` calls each method once, in the order below, in every process of the run.
    """

    restarts: int = 0
    """How often a batch system has started the run again."""

    @abstractmethod
    def connect(self, recipe: Recipe) -> AbstractContextManager[Recipe]:
        """Inside the block the processes of the run are connected. Gives the recipe with the number of all ranks, after
        a check that all processes have the same one."""

    @abstractmethod
    def from_first(self, find: Callable[[], Value]) -> Value:
        """What `find` gives in the first process, which alone calls it, in every process; so does its error."""

    @abstractmethod
    def prepare(self, recipe: Recipe, trust: Trust) -> Job:
        """The job, if the code of the recipe may run, its data are here and the processes agree on both."""

    @abstractmethod
    def restore(self, position: int, snapshot: Snapshot | None) -> None:
        """Starts after round `position`, from `snapshot`, which only the first process has, instead of the recipe's
        starting values."""

    @abstractmethod
    def allocation(self) -> Allocation:
        """Where the ranks are."""

    @abstractmethod
    def train(self, record: Recorder | None, failover_place: FailoverPlace) -> dict[str, Any] | None:
        """Runs the ranks to the end. The results, in the first process, which has the `record`; the others know where
        its run directory is."""


def refuse_snapshots(recipe: Recipe) -> None:
    """Options that need the arena, or replicas that another launcher started."""
    for name in ("resume", "snapshot_every"):
        if recipe.option(name):
            raise UserError(
                f"{flag(name)} needs the arena that ranks started by unisono train share",
                hint=f"leave --transport out: unisono train --ranks {recipe.ranks.count}; or start it with mpirun or "
                "torchrun"
                if of(recipe).asynchronous
                else "leave out --transport, --allreduce and --strategy; or start it with mpirun or torchrun",
            )


def check_nodes(recipe: Recipe, nodes: int) -> None:
    """Refuses what cannot be done across nodes."""
    if nodes > 1 and recipe.model.sync_batchnorm:
        raise UserError(
            f"--sync-batchnorm exchanges statistics in shared memory, and these ranks are on {nodes} nodes",
            hint="leave it out, or use the ranks of one node",
        )
    if nodes > 1 and of(recipe).state_in_parts(nodes) and (recipe.faults.resume or recipe.faults.snapshot_every):
        raise UserError(
            f"snapshots of --strategy {recipe.strategy.name} on {nodes} nodes: each has the states of its own "
            "replicas only",
            hint="leave --resume and --snapshot-every out, or use the ranks of one node",
        )
