"""Events: ranks that were lost, stalled or came back, and snapshots, in their order."""

from collections import Counter
from collections.abc import Sequence

from unisono.report.page.axes import kind_of, places_of, told
from unisono.report.page.blocks import Block, Section, Table, Text
from unisono.report.page.figures import finite, seconds_of
from unisono.report.run import Run

MOST = 200


def section(runs: Sequence[Run]) -> Section | None:
    """A table a run, of those to which something happened."""
    blocks: list[Block] = []
    for run in runs:
        if run.events:
            blocks += [Text(_counted(run, name=len(runs) > 1)), _table(run)]
            if len(run.events) > MOST:
                blocks.append(Text(f"The first {MOST} of {len(run.events):,}; all are in events.jsonl.", "note"))
    return Section("What happened", blocks) if blocks else None


def _counted(run: Run, *, name: bool) -> str:
    kinds = Counter(kind_of(event) or str(event.get("kind", "event")) for event in run.events)
    counts = ", ".join(f"{kind}: {count}" for kind, count in kinds.most_common(8))
    return f"{run.name}: {counts}." if name else f"{counts}."


def _table(run: Run) -> Table:
    place, rows = places_of(run), []
    for event in run.events[:MOST]:
        at, after_s = place(event), event.get("s_after_start")
        rows.append(
            [
                seconds_of(after_s) if finite(after_s) else "",
                f"{int(at[0]) + 1}" if at else "",
                kind_of(event) or str(event.get("kind", "")),
                told(event),
            ]
        )
    return Table(("after the start", "epoch", "kind", "what"), rows)
