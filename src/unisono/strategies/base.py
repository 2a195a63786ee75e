"""Strategy: what the trainer knows of how ranks work together on a round.

The one idea: a strategy is given a round of work (a batch to learn, an evaluation) and sees to it that every part of
it is done by somebody, once; what was exchanged in between, and when, and what had to be done again, is its own affair.
The trainer is the same for all of them.

    found = strategy.step(Batch(position, epoch, step, live, samples, lr, number, load=load))
    table = strategy.evaluate(position, blocks, measure, tell)
"""

import math
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np

from unisono.data.loader import Group
from unisono.models.base import Noise
from unisono.strategies.arena.state import SnapshotSource

TIMES = ("data_s", "compute_s", "wait_s", "update_s")
"""Where a rank's time goes: loading, gradients, waiting for (and exchanging with) others, summing and updating."""

Load: TypeAlias = Callable[[range], list[Group]]
Measure: TypeAlias = Callable[[int], tuple[float, float]]
Tell: TypeAlias = Callable[[np.ndarray], None]
Check: TypeAlias = Callable[[], None]
Trace: TypeAlias = Callable[[str, float, float], None]
"""trace(what, begun, ended): a stretch of a step, as time.perf_counter; see `Strategy.trace`."""


def unchecked() -> None:
    """The `Check` of an evaluation that needs none."""


@final
@dataclass(frozen=True)
class EpochExtras:
    """What a strategy adds to the record of an epoch."""

    metrics: dict[str, Any] = field(default_factory=dict)
    """Beside those that all strategies have."""
    pushes: list[Any] = field(default_factory=list)
    """A row (rank, batch, staleness, applied, greeted) each: see `asynchronous/recorded_order.py`."""


@final
class Batch(NamedTuple):
    """One global batch of `samples` in `live` shards. A tuple, for one is made for every step."""

    position: int
    """The number of the round; see `training/round_schedule.py`."""
    epoch: int
    step: int
    """Within the epoch, from 0."""
    live: int
    samples: int
    lr: float
    number: int
    """Of the step in the whole run, from 1."""
    load: Load
    """The samples of a range of shards."""
    noise: Noise | None = None
    """noise(shard) -> generator."""
    shares: bool = False
    """Also find out what each rank contributed, for `contributions`."""
    due: bool = False
    """Whether a snapshot of what this round leaves is wanted."""
    steps: int = 1
    """How many steps it stands for, `step` being the first of them; see `strategies/local/strategy.py`."""


@final
class StepResult(NamedTuple):
    """What one step found: global sums, equal on every rank."""

    loss_sum: float
    correct: float

    @classmethod
    def of(cls, sums: np.ndarray) -> "StepResult":
        """Of the (loss, correct) of each shard, (live, 2); `NotFinite` names the first shard without a loss."""
        loss_sum, correct = (sums[0] if len(sums) == 1 else np.add.reduce(sums)).tolist()
        if not math.isfinite(loss_sum):
            shard = int(np.argmin(np.isfinite(sums[:, 0])))
            raise NotFinite(shard, float(sums[shard, 0]))
        return cls(loss_sum, correct)


@final
@dataclass(frozen=True)
class Clock:
    """When the epoch began and when its last step ended, as time.perf_counter, which all processes of a node share."""

    begun: float
    ended: float
    first_sync_s: float
    """What the first step of the run spent on waiting and updating."""
    from_step: int
    """The step at which `begun` was read: 0, unless the run was resumed in the middle of the epoch."""


class NotFinite(Exception):
    """The loss of a shard is not a number; nothing was updated."""

    def __init__(self, shard: int, loss: float, advice: str = "") -> None:
        """advice: what the strategy knows to be better than a lower learning rate."""
        super().__init__(f"the loss of shard {shard} is {loss}")
        self.shard, self.loss, self.advice = shard, loss, advice


class Strategy(ABC):
    """One rank's side; called by every rank in the same order."""

    rank: int
    size: int
    params: np.ndarray
    """(length or more,) float32: the parameters; beyond the model's length lies padding."""
    buffers: np.ndarray
    scores: np.ndarray
    """(epochs + 1, 3): loss, accuracy and whether there was an evaluation, of each epoch; the trainer's to fill."""
    trace: Trace | None = None
    """If set, told when a step waits for others ("wait"), adds gradients up ("sum"; "exchange": waiting included) and
    updates ("update"). Waiting for norms lies inside an update."""

    @property
    @abstractmethod
    def at(self) -> tuple[int, bool]:
        """Where to begin: a round, and whether it is done already (0, True: nothing is)."""

    @property
    @abstractmethod
    def first(self) -> bool:
        """Whether this rank is the one that speaks for all; another one may be so later."""

    @property
    def hosts(self) -> list[str]:
        """Where each rank runs."""
        return [socket.gethostname()] * self.size

    @abstractmethod
    def share(self, live: int) -> range:
        """The shards that this rank computes when `live` of them are not empty."""

    @abstractmethod
    def step(self, batch: Batch) -> StepResult:
        """Learns one batch. `NotFinite` if its loss is no number."""

    @abstractmethod
    def evaluate(
        self, position: int, count: int, measure: Measure, tell: Tell, *, due: bool = False, check: Check = unchecked
    ) -> np.ndarray:
        """(count, 2): measure(i) for each i, by whoever; equal on every rank.

        check() is called on every rank, when `params` and `buffers` hold what was learnt, before anything is measured;
        what it raises there, it raises on all.

        tell(table) is called on one rank, when the table is complete and before anybody goes on; there `epoch_sums`,
        `times` and `contributions` may be asked for. It may be called again, by another rank, if the first dies.
        """

    def check_reproducible(self) -> None:  # noqa: B027  (others' strategies know what they do)
        """`Model.check_reproducible` of whatever this rank computes with: before an epoch is told, a snapshot kept, a
        run left."""

    @property
    def snapshot_source(self) -> SnapshotSource | None:
        """What snapshots are made of; None: this strategy has none, and never halts."""
        return None

    def set_on_snapshot_copy(self, on_snapshot_copy: Callable[[int], None]) -> None:  # noqa: B027  (where there are none)
        """Calls on_snapshot_copy(position) from now on, where `first` is true, when a copy of the state after that
        round is complete."""

    def ask_to_halt(self) -> None:  # noqa: B027  (who has no snapshots does not halt)
        """All ranks are to end after a round. Asked of any of them, in a handler of signals too."""

    @abstractmethod
    def halts_after(self, position: int) -> bool:
        """Whether all ranks were asked to end after this round."""

    def left_at(self, position: int) -> int:
        """The last round that is done as a whole when all have ended after `position`, maybe in the middle of it."""
        return position

    def close(self) -> None:  # noqa: B027  (most have nothing to give back)
        """Gives back what the strategy holds beside memory; may be called by one rank alone."""

    @abstractmethod
    def epoch_sums(self) -> tuple[float, float]:
        """(losses, correct) of all samples of the epoch so far."""

    @abstractmethod
    def times(self, epoch: int) -> list[dict[str, Any]]:
        """For each rank, of this epoch: samples, `TIMES`, and in how many steps it was the last to come."""

    def step_s(self) -> float:
        """What this rank's gradients of a step took the last time; 0 if that is not known."""
        return 0.0

    def epoch_extras(self, epoch: int) -> EpochExtras:
        """What else there is to say of an epoch."""
        return EpochExtras()

    @abstractmethod
    def clock(self) -> Clock:
        """The times of the epoch."""

    @abstractmethod
    def note_memory(self, nbytes: int) -> None:
        """What this rank holds; the others learn it with the next evaluation."""

    @abstractmethod
    def memory_bytes(self) -> int:
        """What all ranks noted; known where `first` is true."""

    @abstractmethod
    def contributions(self) -> np.ndarray:
        """(rank, parameter, contributions.FIELDS) of the last step that was made with shares=True."""
