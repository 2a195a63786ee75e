"""Comparison: where the time of each combination goes, accuracy by epoch, the table, and what stands out."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from unisono.report.html.blocks import Axis, Block, Lines, Rows, Section, Series, Text
from unisono.report.html.number_text import finite
from unisono.report.html.sections.rank_work import PARTS
from unisono.report.html.study_table import split_reasons, table_of
from unisono.report.run.load import Run
from unisono.report.studies.cell_rows import plain_numbers
from unisono.report.studies.compare import table, words_of

NEEDED = ("train_s", "train_s_low", "train_s_high", "wall_s", "samples_per_s", "repeats")
MOST = 24
"""Combinations in a chart, and options in the table."""
RATIO = ("ratio", "ratio_low", "ratio_high")


def section(runs: Sequence[Run]) -> Section | None:
    """The tables of all runs that hold such a study."""
    blocks: list[Block] = []
    for run in runs:
        rows = [row for row in run.studies.get("compare", []) if usable(row)]
        if not rows:
            continue
        if len(runs) > 1:
            blocks.append(Text(run.name, "lead"))
        above, below = split_reasons(words_of(rows), rows)
        blocks += above
        blocks += _charts([row for row in rows if not row.get("reason")])
        made = table(rows, list(dict.fromkeys(option for row in rows for option in row["labels"]))[:MOST])
        blocks += [table_of(made, rows), *below]
    return Section("Comparison", blocks) if blocks else None


def usable(row: dict[str, Any]) -> bool:
    """Whether it is a row of `unisono compare`."""
    labels = row.get("labels")
    if not isinstance(row.get("cell"), str) or not isinstance(labels, dict):
        return False
    if not all(isinstance(value, str) and row.get(option) == value for option, value in labels.items()):
        return False
    if row.get("reason"):
        return isinstance(row["reason"], str)
    curve = row.get("accuracies")
    ratios = [row.get(name) for name in RATIO]
    return (
        all(finite(row.get(name)) for name in NEEDED)
        and plain_numbers(row)
        and (curve is None or (isinstance(curve, list) and all(map(finite, curve))))
        and (all(ratio is None for ratio in ratios) or all(finite(ratio) for ratio in ratios))
        and isinstance(row.get("weights_sha256"), str | None)
    )


def _charts(rows: Sequence[dict[str, Any]]) -> list[Block]:
    """A bar a combination, a curve a combination; the first ones, if there are many."""
    shown, blocks = rows[:MOST], list[Block]()
    if not shown:
        return []
    names = [", ".join(row["labels"].values()) for row in shown]  # short, for phones; options are named below
    left = f"{len(rows) - len(shown)} more combinations are in the table only. " if len(rows) > len(shown) else ""
    cells = np.zeros((len(shown), 1, 2 + len(PARTS)))
    for at, row in enumerate(shown):
        cells[at, 0, 1:-1] = [max(0.0, row.get(name) or 0.0) for name in PARTS]
        cells[at, 0, -1] = max(0.0, row["train_s"] - cells[at, 0].sum())
    blocks.append(
        Rows(
            "Training time, and where it went", Axis("time", "s"), names, [""],
            [*PARTS.values(), "other"], cells,
            note=f"{left}Of each: {', '.join(shown[0]['labels'])}. Medians of the repeats; parts are means over ranks.",
            colours=[0, 1, 2, 3, 6],
        )
    )  # fmt: skip
    curves = [
        Series(names[at], [range(1, len(row["accuracies"]) + 1)], [100 * value for value in row["accuracies"]], at)
        for at, row in enumerate(shown)
        if row.get("accuracies")
    ]
    if any(len(curve.y) > 1 for curve in curves):
        blocks.append(
            Lines("Accuracy by epoch", [Axis("epoch", counted=True)], Axis("accuracy", "%"), curves, note=left)
        )
    return blocks
