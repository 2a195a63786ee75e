"""Comparison: the table of `unisono compare`, and what stands out."""

from collections.abc import Sequence
from typing import Any

from unisono.report.compare import table, words_of
from unisono.report.measured import plain_numbers
from unisono.report.page.blocks import Block, Section, Table, Text
from unisono.report.page.figures import finite
from unisono.report.run import Run

NEEDED = ("train_s", "train_s_low", "train_s_high", "wall_s", "samples_per_s", "repeats")
RATIO = ("ratio", "ratio_low", "ratio_high")


def section(runs: Sequence[Run]) -> Section | None:
    """Of all runs that hold such a study."""
    blocks: list[Block] = []
    for run in runs:
        rows = [row for row in run.studies.get("compare", []) if usable(row)]
        if not rows:
            continue
        if len(runs) > 1:
            blocks.append(Text(run.name, "lead"))
        blocks += [Text(line) for line in words_of(rows)]
        made = table(rows, list(dict.fromkeys(option for row in rows for option in row["labels"])))
        blocks.append(Table([column.title for column in made.columns], [made.texts(row) for row in rows]))
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
    ratios = [row.get(name) for name in RATIO]
    return (
        all(finite(row.get(name)) for name in NEEDED)
        and plain_numbers(row)
        and (all(ratio is None for ratio in ratios) or all(finite(ratio) for ratio in ratios))
        and isinstance(row.get("weights_sha256"), str | None)
    )
