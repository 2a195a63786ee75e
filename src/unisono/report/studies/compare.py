"""What `unisono compare` found: a row for each combination, ratios to the first one, and what stands out. Records only.

    rows = rows_of(cells, records); table(rows, ["strategy", "ranks"]).shown(rows); words_of(rows)

The one idea: a ratio is that of two runs of the same round, and a difference is one only if it has the same sign in all
rounds. What changes nothing is as much a finding: equal weights mean that an option had no effect on the result.
"""

from collections.abc import Sequence
from typing import Any

from unisono.report.studies.background_load import load_columns, load_line
from unisono.report.studies.cell_rows import (
    BITS,
    EPOCHS,
    LOST,
    REASON,
    SPEEDS,
    compare_rates,
    energy_of,
    failed_runs_line,
    measured,
    percent,
    scores_of,
    short_line,
    useful,
)
from unisono.study.cells import Cell
from unisono.study.study import Record, counted, failure, losses
from unisono.study.tables import NOT_YET, Column, Row, Table

TITLE = "ratio: how many times as fast as the first; ±: half the range of the repeats"


def rows_of(cells: Sequence[Cell], records: Sequence[Record]) -> list[dict[str, Any]]:
    """In the order of the cells; of one that has no finished run the reason is all there is."""
    rows = []
    for cell in cells:
        row: dict[str, Any] = {"cell": cell.name, "labels": dict(cell.labels), **cell.labels}
        if runs := counted(records, cell):
            row |= measured(runs)
            row |= losses(records, cell)
        else:
            row["reason"] = failure(records, cell) or NOT_YET
        rows.append(row)
    base = baseline_of(rows)
    for row in rows:
        if base is not None and not row.get("reason"):
            compare_rates(row, base, "ratio")
    return rows


def baseline_of(rows: Sequence[Row]) -> Row | None:
    """The first that was measured."""
    return next((row for row in rows if not row.get("reason")), None)


def table(rows: Sequence[Row], options: Sequence[str]) -> Table:
    """A column for each option that is varied; then those that these rows have something for."""
    rows = list(rows)
    found = [
        *scores_of(rows),
        EPOCHS,
        *SPEEDS,
        Column("ratio", "ratio", ranged=2),
        Column("sync_share", "sync %", percent(0), minor=True),
        energy_of(rows),
        BITS,
        *([LOST] if any(row.get("failed") for row in rows) else []),
        *load_columns(rows),
        REASON,
    ]
    return Table(TITLE, [Column(option, option, left=True) for option in options] + useful(found, rows))


def words_of(rows: Sequence[Row]) -> list[str]:
    """The fastest, what makes no difference, what changes nothing, what failed; a line each."""
    base = baseline_of(rows)
    if base is None:
        return _failures(rows)
    lines = [*_speed_lines(rows, base), *_bits_lines(rows)]
    if base is not rows[0]:
        lines.insert(0, f"Ratios are to {base['cell']}: the first combination, {rows[0]['cell']}, was not measured.")
    lines += [short_line(rows, "cell"), load_line(rows, lambda row: str(row["cell"]))]
    return [line for line in lines if line] + _failures(rows)


def _failures(rows: Sequence[Row]) -> list[str]:
    """A line a reason."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        if row.get("reason"):
            groups.setdefault(row["reason"], []).append(row["cell"])
    lines = [f"{'; '.join(cells)}: {reason}" for reason, cells in groups.items()]
    return [line for row in rows if (line := failed_runs_line(row, row["cell"]))] + lines


def _speed_lines(rows: Sequence[Row], base: Row) -> list[str]:
    others = [row for row in rows if row.get("ratio") is not None and row is not base]
    if not others:
        return []
    rounds = max(row["repeats"] for row in [base, *others])
    whole = [row for row in [base, *others] if row["ratio_rounds"] == rounds]  # luck is no speed
    best = max(whole, key=lambda row: row["ratio"], default=base)
    lines = []
    if best is not base:
        lines = [f"Fastest: {best['cell']}, {_times(best)} times as fast as {base['cell']}."]
    elif len(whole) > 1:
        lines = [f"Fastest: {base['cell']}, the first."]
    alike = [row["cell"] for row in others if row in whole and row["ratio_low"] <= 1 <= row["ratio_high"]]
    if alike and rounds > 1:
        lines.append(f"As fast as {base['cell']}, as far as these rounds can tell: {'; '.join(alike)}.")
    if rounds < 2:
        lines.append("Measured once: --repeat 4 would tell what is chance.")
    return lines


def _times(row: Row) -> str:
    low, high = f"{row['ratio_low']:.2f}", f"{row['ratio_high']:.2f}"
    return low if low == high else f"{low} to {high}"


def _bits_lines(rows: Sequence[Row]) -> list[str]:
    """Equal results, and results that do not repeat."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        if row.get("weights_sha256"):
            groups.setdefault(row["weights_sha256"], []).append(row["cell"])
    lines = [
        f"Equal bits ({weights[:16]}...): {'; '.join(cells)}. What varies among them changes nothing but the time."
        for weights, cells in groups.items()
        if len(cells) > 1
    ]
    unsteady = [row["cell"] for row in rows if not row.get("reason") and row["weights_sha256"] is None]
    if unsteady:
        lines.append(f"Not the same bits in all runs, of the same recipe: {'; '.join(unsteady)}.")
    return lines
