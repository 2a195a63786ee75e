"""Prediction: throughput, efficiency and all-reduces against nodes, by network; how good the model is."""

from collections.abc import Mapping, Sequence
from typing import Any

from unisono.report.html.blocks import Axis, Block, Fold, Lines, Section, Series, Table, Text
from unisono.report.html.number_text import finite
from unisono.report.run.load import POINTS, Run
from unisono.report.studies.background_load import has_plain_load
from unisono.report.studies.predict import checks, table, words_of

NODES = Axis("nodes", log=True, counted=True)
NEEDED = ("step_s", "samples_per_s", "efficiency", "network_share", "local_samples_per_s")
CHECKED = ("predicted_s", "measured_s", "error")
STEP = "_step_s"
"""Ends the names of what a step takes by each all-reduce."""
MOST_ALGORITHMS = 16
Row = Mapping[str, Any]


def section(runs: Sequence[Run]) -> Section | None:
    """Of all runs that hold a prediction."""
    blocks: list[Block] = []
    for run in runs:
        rows = [row for row in run.studies.get("predict", []) if usable(row)]
        done = [row for row in rows if not row.get("reason")]
        if not done:
            continue
        if len(runs) > 1:
            blocks.append(Text(run.name, "lead"))
        points = [point for point in run.studies.get(POINTS, []) if _is_point(point)]
        blocks += [Text(line) for line in words_of(rows, points)]
        networks = list(dict.fromkeys(row["network"] for row in done))
        by_network = {name: [row for row in done if row["network"] == name] for name in networks}
        blocks.append(_efficiency(by_network))
        for name, mine in by_network.items():
            blocks += [_throughput(name, mine), *_steps(name, mine)]
        for name in networks:
            mine = [row for row in rows if row["network"] == name]
            made = table(mine)
            blocks += [Text(made.title, "note"), _texts(made, mine)]
        if points:
            made = checks(points)
            blocks.append(Fold(made.title[0].upper() + made.title[1:], [_texts(made, points)]))
    return Section("Prediction", blocks) if blocks else None


def usable(row: Row) -> bool:
    """Whether it is a row of `unisono predict`."""
    if not isinstance(row.get("network"), str):
        return False
    if not all(type(row.get(name)) is int and 0 < row[name] < 2**53 for name in ("nodes", "ranks", "batch")):
        return False
    if row.get("reason"):
        return isinstance(row["reason"], str)
    steps = [value for name, value in row.items() if name.endswith(STEP)]
    return (
        all(finite(row.get(name)) and row[name] >= 0 for name in NEEDED)
        and row["samples_per_s"] > 0
        and (row.get("async_samples_per_s") is None or finite(row["async_samples_per_s"]))
        and all(value is None or finite(value) for value in steps)
        and all(isinstance(row.get(name), str) for name in ("algorithm", "best"))
    )


def _is_point(point: Row) -> bool:
    return (
        all(finite(point.get(name)) for name in CHECKED)
        and all(point[name] >= 0 for name in CHECKED[:2])
        and isinstance(point.get("name"), str)
        and isinstance(point.get("held_out"), bool)
        and has_plain_load(point)
    )


def _efficiency(by_network: Mapping[str, Sequence[Row]]) -> Lines:
    series = [
        Series(name, [[row["nodes"] for row in rows]], [100 * row["efficiency"] for row in rows], number)
        for number, (name, rows) in enumerate(by_network.items())
    ]
    return Lines("Efficiency of sync", [NODES], Axis("of as many single nodes", "%"), series)


def _throughput(network: str, rows: Sequence[Row]) -> Lines:
    """A line a strategy, and what nodes without a network between them would do."""
    lone = rows[0]["samples_per_s"] / rows[0]["nodes"] / (rows[0]["efficiency"] or 1.0)
    found = [("sync", "samples_per_s"), ("local SGD", "local_samples_per_s"), ("async", "async_samples_per_s")]
    series = [Series("ideal", [[row["nodes"] for row in rows]], [lone * row["nodes"] for row in rows], 5, dashed=True)]
    for colour, (name, column) in enumerate(found):
        known = [row for row in rows if (row.get(column) or 0) > 0]
        if known:
            series.append(Series(name, [[row["nodes"] for row in known]], [row[column] for row in known], colour))
    return Lines(f"Throughput, {network}", [NODES], Axis("samples/s", log=True), series)


def _steps(network: str, rows: Sequence[Row]) -> list[Lines]:
    """A step by each all-reduce, if there is more than one node."""
    names = list(dict.fromkeys(name for row in rows for name in row if name.endswith(STEP)))[:MOST_ALGORITHMS]
    series = []
    for colour, name in enumerate(names):
        known = [row for row in rows if (row.get(name) or 0) > 0]
        values = [row[name] for row in known]
        series.append(Series(name.removesuffix(STEP), [[row["nodes"] for row in known]], values, colour))
    chart = Lines(f"A step of sync by all-reduce, {network}", [NODES], Axis("time of a step", "s", log=True), series)
    return [chart] if series else []


def _texts(made: Any, rows: Sequence[Row]) -> Table:
    return Table([column.title for column in made.columns], [made.texts(row) for row in rows])
