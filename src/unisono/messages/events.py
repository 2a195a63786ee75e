"""What happens to the ranks and snapshots of a run: events, and their lines in events.jsonl.

>>> RankJoined(rank=1, position=7, reached="COMMIT", ranks=4, s=0.01).to_json()["kind"]
'join'

The one idea: a file outlives the version that wrote it, so `read_event` alone knows what lines of earlier versions
lack; everybody else gets a type or None.

Limits: None for a line that is none of ours, or lacks what its kind must have.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeAlias, final

OTHERS, REPLACEMENT, NOBODY = "others", "replacement", "nobody"
"""Who took over from a rank that died: nobody, if the run was given up with it."""
_STALLED = "did not move"
"""How the cause of a stalled rank's end begins in records that do not say `stalled`."""


class _Event:
    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """Its line in events.jsonl."""
        return {"kind": self.kind} | asdict(self)  # type: ignore[call-overload, no-any-return]


@final
@dataclass(frozen=True)
class RankDied(_Event):
    """A rank was lost while round `position` was under way, and the members changed."""

    kind: ClassVar[str] = "death"
    rank: int
    cause: str
    worked: bool
    """Whether it was a member; else a replacement on its way."""
    position: int
    reached: str
    """The phase of the round that all had come to."""
    ranks: int
    """Those who are left."""
    s: float
    """How long the change took."""
    taken_over_by: str
    stalled: bool = False
    """Whether it was ended because it did not move."""


@final
@dataclass(frozen=True)
class RankJoined(_Event):
    """A replacement became a member."""

    kind: ClassVar[str] = "join"
    rank: int
    position: int
    reached: str
    ranks: int
    s: float


@final
@dataclass(frozen=True)
class ReplacementFailed(_Event):
    """A replacement did not live to join; again: whether another one is tried."""

    kind: ClassVar[str] = "newcomer"
    rank: int
    cause: str
    again: bool


@final
@dataclass(frozen=True)
class SnapshotWritten(_Event):
    """It is in `path`; cause: why that is not its own folder."""

    kind: ClassVar[str] = "snapshot"
    position: int
    path: str
    cause: str = ""

    def to_json(self) -> dict[str, Any]:
        """Without a cause that there is none of."""
        return {name: value for name, value in super().to_json().items() if name != "cause" or value}


@final
@dataclass(frozen=True)
class SnapshotFailed(_Event):
    """It could not be written."""

    kind: ClassVar[str] = "snapshot"
    position: int
    cause: str

    def to_json(self) -> dict[str, Any]:
        """As that of one that was written, without a path."""
        return {"kind": self.kind, "position": self.position, "path": None, "cause": self.cause}


@final
@dataclass(frozen=True)
class StopRequested(_Event):
    """The ranks take their time to end as they were asked to."""

    kind: ClassVar[str] = "asked to end"


Event: TypeAlias = RankDied | RankJoined | ReplacementFailed | SnapshotWritten | SnapshotFailed | StopRequested


def read_event(line: dict[str, Any]) -> Event | None:
    """What a line of events.jsonl, perhaps of an earlier version, tells."""
    try:
        return _read(_Line(line))
    except (TypeError, OverflowError):
        return None


def _read(line: "_Line") -> Event | None:
    kind = line.entries.get("kind")
    if kind == RankDied.kind:
        cause, ranks = line.text("cause"), line.whole("ranks")
        heirs = line.text("taken_over_by", OTHERS if ranks else NOBODY)
        stalled = line.flag("stalled", cause.startswith(_STALLED))
        where = line.whole("position", 0), line.text("reached", "")
        return RankDied(
            line.whole("rank"), cause, line.flag("worked", True), *where, ranks, line.seconds("s"), heirs, stalled
        )
    if kind == RankJoined.kind:
        where = line.whole("position", 0), line.text("reached", "")
        return RankJoined(line.whole("rank"), *where, line.whole("ranks"), line.seconds("s", 0.0))
    if kind == ReplacementFailed.kind:
        return ReplacementFailed(line.whole("rank"), line.text("cause"), line.flag("again"))
    if kind == SnapshotWritten.kind and line.entries.get("path") is None:
        return SnapshotFailed(line.whole("position", 0), line.text("cause", ""))
    if kind == SnapshotWritten.kind:
        return SnapshotWritten(line.whole("position", 0), line.text("path"), line.text("cause", ""))
    return StopRequested() if kind == StopRequested.kind else None


@final
class _Line:
    """Entries of the right type; a `TypeError` for others, unless there is something else to take."""

    def __init__(self, entries: dict[str, Any]) -> None:
        self.entries = entries

    def text(self, name: str, otherwise: str | None = None) -> str:
        return str(self._get(name, str, otherwise))

    def whole(self, name: str, otherwise: int | None = None) -> int:
        return int(self._get(name, int, otherwise))

    def flag(self, name: str, otherwise: bool | None = None) -> bool:
        return bool(self._get(name, bool, otherwise))

    def seconds(self, name: str, otherwise: float | None = None) -> float:
        found: Any = self.entries.get(name, otherwise)
        if type(found) not in (int, float) or not math.isfinite(found):
            raise TypeError(name)
        return float(found)

    def _get(self, name: str, kind: type, otherwise: Any) -> Any:
        found = self.entries.get(name, otherwise)
        if type(found) is not kind:
            if otherwise is None:
                raise TypeError(name)
            return otherwise
        return found
