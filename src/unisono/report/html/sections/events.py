"""Events: ranks that were lost, stalled or came back, and snapshots, in their order."""

from collections import Counter
from collections.abc import Sequence

from unisono.report.html.axes import kind_of
from unisono.report.html.blocks import Block, Section, Table, Text
from unisono.report.html.event_rows import lines_of
from unisono.report.run.load import Run

MOST = 200
SHORTENED = (
    f"These are {{:,}} events in at most {MOST} lines: snapshots that follow each other stand in one, and everything "
    "else goes before them; all are in events.jsonl."
)


def section(runs: Sequence[Run]) -> Section | None:
    """A table a run, of those to which something happened."""
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
