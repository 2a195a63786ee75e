"""What a rank tells the process that started it, or that records the run: one frozen type for each thing.

    report(Progress(epoch=1, step=3, steps=23, samples_per_s=5100.0))
    match message:
        case Progress(): ...

The one idea: who receives a message dispatches by its type; nobody looks for keys. `packing.py` carries them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final

from unisono.errors import with_hint


@final
@dataclass(frozen=True)
class Progress:
    """How far the epoch under way is, now and then."""

    epoch: int
    step: int
    steps: int
    samples_per_s: float


@final
@dataclass(frozen=True)
class EpochRecord:
    """What an epoch found, told once or, after a death, again."""

    metrics: dict[str, Any]
    """A row of metrics.jsonl."""
    steps: int
    ranks: list[dict[str, Any]]
    """A row of ranks.csv for each rank."""
    shares: Any
    """(rank, parameter, 3), as lists or an array: what each rank contributed to each parameter."""
    meetings: int
    """How often all ranks met."""
    pushes: list[Any] = field(default_factory=list)
    """Rows of pushes.csv, of asynchronous ranks."""


@final
@dataclass(frozen=True)
class RankProcess:
    """The process of a rank, for those who measure it."""

    rank: int
    pid: int


@final
@dataclass(frozen=True)
class Note:
    """A sentence for the user."""

    text: str


@final
@dataclass(frozen=True)
class WeightsTrouble:
    """The weights of an epoch could not be written, and will be tried again; empty: they could."""

    message: str = ""
    hint: str = ""

    @property
    def text(self) -> str:
        """For the user."""
        return with_hint(self.message, self.hint)


@final
@dataclass(frozen=True)
class FinalWeights:
    """Where the weights that the run ends with are; None: nowhere. message: why they are not in their own place."""

    path: str | None
    message: str = ""
    hint: str = ""

    @property
    def text(self) -> str:
        """For the user."""
        return with_hint(self.message, self.hint)


@final
@dataclass(frozen=True)
class SnapshotReady:
    """All ranks have copied what round `position` left: the copy can be written."""

    position: int


@final
@dataclass(frozen=True)
class ReadyToJoin:
    """A replacement only waits to be let in."""


@final
@dataclass(frozen=True)
class SharedModel:
    """A rank has the memory of a shared model: open file `fd` of process `pid`, laid out as `sections` says."""

    pid: int
    fd: int
    sections: Any


@final
@dataclass(frozen=True)
class StopsOnRequest:
    """The loops of the ranks end in good order, with a snapshot, when they are asked to."""


@final
@dataclass(frozen=True)
class UserReport:
    """What the user's code gave to `world.report`."""

    value: Any


@final
@dataclass(frozen=True)
class StoppedAt:
    """The result of a rank that left before the end of the run; position: the last round, if the rank knows it."""

    position: int | None = None


@final
@dataclass(frozen=True)
class Result:
    """What a child returned."""

    value: Any


@final
@dataclass(frozen=True)
class Failure:
    """The exception that ended a child."""

    kind: str
    """The name of its type."""
    report: str
    """A traceback, or the message of an error of ours."""
    traceback: bool
    """Whether it is a traceback."""
    rank: int | None = None
    """The rank that the message itself names as the one that speaks."""


@final
@dataclass(frozen=True)
class LeftOnRequest:
    """A child left because it was asked to end; `snapshot`: what to go on from."""

    snapshot: str


Report: TypeAlias = (
    Progress
    | EpochRecord
    | RankProcess
    | Note
    | WeightsTrouble
    | FinalWeights
    | SnapshotReady
    | ReadyToJoin
    | SharedModel
    | StopsOnRequest
    | UserReport
)
"""What comes while a child works."""
SendReport: TypeAlias = Callable[[Report], None]
"""Hands a report to whoever records the run."""
TYPES = (
    Progress, EpochRecord, RankProcess, Note, WeightsTrouble, FinalWeights, SnapshotReady, ReadyToJoin, SharedModel,
    StopsOnRequest, UserReport, StoppedAt, Result, Failure, LeftOnRequest,
)  # fmt: skip
