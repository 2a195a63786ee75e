"""Host: where the ranks of a run come from, and what `Course` asks of that.

The one idea: the course of a run is the same everywhere. A host knows what differs: who connects the processes, how
they agree, who holds the state, and what runs the ranks. There are three: `SupervisedHost` (this process starts the
ranks), `LaunchedHost` (mpirun, torchrun or srun started this rank) and `MultiMachineHost` (one supervisor a machine).

Each method is called once, in the order below, by every process of the run.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar, final

from unisono.recipe import Recipe
from unisono.runs.recorder import Recorder
from unisono.runs.snapshots.failover import FailoverPlace
from unisono.storage.snapshots.snapshot import Snapshot
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


class Host(ABC):
    """One process of a run."""

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
