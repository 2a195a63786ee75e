"""Scaling: speed-up with both laws, time and accuracy against ranks, the table, and what limits it, in words."""

from collections.abc import Sequence
from typing import Any

from unisono.report.html.blocks import Axis, Block, Lines, Section, Series, Text
from unisono.report.html.number_text import finite
from unisono.report.html.study_table import split_reasons, table_of
from unisono.report.run.load import Run
from unisono.report.studies.cell_rows import plain_numbers
from unisono.report.studies.scale import baseline_of, table
from unisono.report.studies.scaling_limits import laws_of, words_of
from unisono.study.tables import Row

WHOLE = ("nodes", "ranks", "world", "threads", "cores")
NEEDED = (
    "train_s",
    "train_s_low",
    "train_s_high",
    "samples_per_s",
    "compute_s",
    "data_s",
    "wait_s",
    "update_s",
    "repeats",
)
RANKS = Axis("ranks", counted=True)
FINE = 60
"""Points of a law's curve."""


def section(runs: Sequence[Run]) -> Section | None:
    """Of all runs that hold such a study."""
    blocks: list[Block] = []
    for run in runs:
        rows = [row for row in run.studies.get("scale", []) if usable(row)]
        if not rows:
            continue
        if len(runs) > 1:
            blocks.append(Text(run.name, "lead"))
        above, below = split_reasons(words_of(rows), rows)
        blocks += above
        done = sorted((row for row in rows if row.get("speed_up") is not None), key=lambda row: row["world"])
        if done:
            blocks += [_gain(done), _chart(done, "Training time", Axis("time", "s"), ["train_s"])]
            scores = [
                name for name in ("train_accuracy", "test_accuracy") if all(finite(row.get(name)) for row in done)
            ]
            if scores:
                blocks.append(_chart(done, "Accuracy", Axis("accuracy", "%"), scores))
        blocks += [table_of(table(rows), rows), *below]
    return Section("Scaling", blocks) if blocks else None


def usable(row: dict[str, Any]) -> bool:
    """Whether it is a row of `unisono scale`."""
    if not all(type(row.get(name)) is int and 0 < row[name] < 2**31 for name in WHOLE):
        return False
    if not isinstance(row.get("grid"), str) or not isinstance(row.get("weak"), bool):
        return False
    if row.get("reason"):
        return isinstance(row["reason"], str)
    rates = row.get("rates")
    return (
        all(finite(row.get(name)) and row[name] >= 0 for name in NEEDED)
        and isinstance(rates, dict)
        and all(finite(rate) and rate > 0 for rate in rates.values())
        and plain_numbers(row, "wall_s", "efficiency", "speed_up", "speed_up_low", "speed_up_high", "utilisation")
        and isinstance(row.get("weights_sha256"), str | None)
    )


def _gain(rows: Sequence[Row]) -> Lines:
    """Measured, ideal, and what the laws make of it."""
    base = baseline_of(rows)
    assert base is not None
    least, most = base["world"], max(row["world"] for row in rows)
    fine = [least + (most - least) * at / FINE for at in range(FINE + 1)]
    worlds = [row["world"] for row in rows]
    series = [
        Series("measured", [worlds], [row["speed_up"] for row in rows], 0),
        Series("ideal", [[least, most]], [1.0, most / least], 5, dashed=True),
    ]
    for colour, law in enumerate(laws_of(rows), 1):
        values = [law.speed_up(ranks) / law.speed_up(least) for ranks in fine]
        series.append(Series(f"{law.name}, {100 * law.serial:.1f} % serial", [fine], values, colour, dashed=True))
    return Lines("Speed-up", [RANKS], Axis("speed-up"), series)


def _chart(rows: Sequence[Row], title: str, y: Axis, names: Sequence[str]) -> Lines:
    """A line a name and number of nodes."""
    series: list[Series] = []
    for nodes in sorted({row["nodes"] for row in rows}):
        mine = [row for row in rows if row["nodes"] == nodes]
        where = "" if nodes == 1 else f", {nodes} nodes"
        for name in names:
            told = name.replace("_s", "").replace("_accuracy", "") + where
            factor = 100 if y.unit == "%" else 1
            values = [factor * row[name] for row in mine]
            series.append(Series(told, [[row["world"] for row in mine]], values, len(series)))
    return Lines(title, [RANKS], y, series)
