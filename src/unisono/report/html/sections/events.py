"""Events: ranks that were lost, stalled or came back, and snapshots, in their order, as many as there is room for.

    for line in lines_of(unisono.load("runs/mine"), most=200): print(line.epoch, line.what)

The one idea: a run that lasts writes hundreds of snapshots, and one death among them is what its reader looks for. If
there is no room for all, snapshots that follow each other become one line, and lines of snapshots give way to all
others; what is shown stays in the order in which it happened.

Limits: an event that is none of ours, or of another version, is shown by the name of its kind.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, final

from unisono.messages.events import SnapshotWritten, read_event
from unisono.report.html.blocks import Block, Section, Table, Text
from unisono.report.html.number_text import finite, seconds_of
from unisono.report.html.run_timeline import event_text, kind_of, places_of
from unisono.report.run.load import Run

Event = dict[str, Any]
MOST = 200
SHORTENED = (
    f"These are {{:,}} events in at most {MOST} lines: snapshots that follow each other stand in one, and everything "
    "else goes before them; all are in events.jsonl."
)


@final
@dataclass(frozen=True)
class Line:
    """One event, or snapshots that followed each other. What is not known is empty."""

    after: str
    """The start of the command that saw it."""
    epoch: str
    kind: str
    what: str

    @property
    def when(self) -> str:
        """In short."""
        return f"epoch {self.epoch}" if self.epoch else f"after {self.after}" if self.after else ""


def lines_of(run: Run, most: int, *, latest: bool = False) -> list[Line]:
    """At most `most`, in their order. latest: the last ones instead of the first, if those that matter are too many."""
    place = places_of(run)
    groups: list[Sequence[Event]] = [[event] for event in run.events]
    if len(groups) > most:
        groups = _folded(run.events)
    order = range(len(groups))[:: -1 if latest else 1]
    shown = sorted(order, key=lambda number: _is_usual(groups[number][0]))[:most]
    return [_line(groups[number], place) for number in sorted(shown)]


def _is_usual(event: Event) -> bool:
    """A snapshot that could be written; one that could not is worth a line of its own."""
    return isinstance(read_event(event), SnapshotWritten)


def _folded(events: Sequence[Event]) -> list[Sequence[Event]]:
    groups: list[Sequence[Event]] = []
    for usual, grouped in groupby(events, _is_usual):
        found = list(grouped)
        groups += [found] if usual else [[event] for event in found]
    return groups


def _line(events: Sequence[Event], place: Callable[[Event], tuple[float, float] | None]) -> Line:
    first, last = events[0], events[-1]
    kind = kind_of(first) or str(first.get("kind", ""))
    after, epoch = (_span(text(first), text(last)) for text in (_after, lambda event: _epoch(place(event))))
    return Line(after, epoch, kind, event_text(first) if len(events) == 1 else f"{len(events):,} snapshots written")


def _span(first: str, last: str) -> str:
    return first if first == last else f"{first} - {last}"


def _after(event: Event) -> str:
    after_s = event.get("s_after_start")
    return seconds_of(after_s) if finite(after_s) else ""


def _epoch(at: tuple[float, float] | None) -> str:
    return f"{int(at[0]) + 1}" if at else ""


def section(runs: Sequence[Run]) -> Section | None:
    """A table for each run that has events."""
    blocks: list[Block] = []
    for run in runs:
        if run.events:
            blocks += [Text(_counted(run, name=len(runs) > 1)), _table(run)]
            if len(run.events) > MOST:
                blocks.append(Text(SHORTENED.format(len(run.events)), "note"))
    return Section("What happened", blocks) if blocks else None


def _counted(run: Run, *, name: bool) -> str:
    kinds = Counter(kind_of(event) or str(event.get("kind", "event")) for event in run.events)
    counts = ", ".join(f"{kind}: {count}" for kind, count in kinds.most_common(8))
    return f"{run.name}: {counts}." if name else f"{counts}."


def _table(run: Run) -> Table:
    rows = [(line.after, line.epoch, line.kind, line.what) for line in lines_of(run, MOST)]
    return Table(("after the start", "epoch", "kind", "what"), rows)
