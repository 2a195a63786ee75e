"""Profile: a step as a flame graph, phases of every rank, modules and operators, activations; of `unisono profile`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unisono.report.html.blocks import Axis, Block, Fold, Rows, Section, Table, Text
from unisono.report.html.flame import COLOURS, ORDER, Flame, frames_of
from unisono.report.html.number_text import finite
from unisono.report.run.load import Run
from unisono.report.studies.background_load import has_plain_load
from unisono.report.studies.profile import (
    Shown,
    activation_cells,
    activation_rows,
    cost_cells,
    others,
    parts_of,
    sentences,
)

COUNTS = ("ranks", "batches", "global_batch", "shards")
SECONDS = ("step_s", "forward_s", "modules_forward_s")
NAMES = ("module", "kind", "phase")
COSTS = ("self_s", "total_s", "average_s")
MOST_RANKS = 64
NOTE = (
    "Rank 0, the mean of watched steps, which take longer than others. Click on a bar to see what is inside, and again "
    "to go back. Phases, modules and operators were timed in steps of their own: what came out longer than the room it "
    "has is drawn to fit; the tables below have what was measured."
)
ALL = Shown(top=1000)


def section(runs: Sequence[Run]) -> Section | None:
    """Of all runs that hold a profile."""
    blocks: list[Block] = []
    for run in runs:
        records = [record for record in run.studies.get("profile", []) if usable(record)]
        if not records:
            continue
        if len(runs) > 1:
            blocks.append(Text(run.name, "lead"))
        blocks += [Text(line) for line in sentences(records[0])]
        if len(records) > 1:
            blocks += _activations(records)
        blocks += _steps(records[0])
    return Section("Profile", blocks) if blocks else None


def usable(record: Mapping[str, Any]) -> bool:
    """Whether it is a record of `unisono profile`."""
    lists = [record.get(name) for name in ("phases", "modules", "operators")]
    if not all(isinstance(rows, list) and all(isinstance(row, dict) for row in rows) for rows in lists):
        return False
    phases, modules, operators = (record[name] for name in ("phases", "modules", "operators"))
    overhead, machine = record.get("overhead"), record.get("machine") or {}
    if not isinstance(machine, dict) or not has_plain_load(others(record)):
        return False
    return (
        all(type(record.get(name)) is int and 0 < record[name] < 2**53 for name in COUNTS)
        and all(finite(record.get(name)) for name in SECONDS)  # of few batches, modules may come out as nothing
        and record["step_s"] > 0
        and all(isinstance(record.get(name), str) for name in ("activation", "engine"))
        and isinstance(overhead, dict)
        and all(map(finite, overhead.values()))
        and bool(phases)
        and all(finite(one.get(name)) for one in phases for name in (*ORDER, "step"))
        and all(type(one.get("rank")) is int and one["step"] > 0 for one in phases)
        and all(_is_cost(row) for row in (*modules, *operators))
        and not any(row["median_s"] is None for row in modules if row["phase"] == "forward")
        and all(isinstance(row.get(name), str) for row in operators for name in ("operator", "shapes"))
    )


def _is_cost(row: Mapping[str, Any]) -> bool:
    memory = [row.get(name) for name in ("memory_bytes", "self_memory_bytes")]
    return (
        all(isinstance(row.get(name), str) for name in NAMES)
        and all(finite(row.get(name)) for name in COSTS)
        and (finite(row.get("median_s")) or row.get("median_s") is None)
        and all(type(row.get(name)) is int for name in ("rank", "calls"))
        and row["calls"] > 0
        and all(count is None or (type(count) is int and abs(count) < 2**53) for count in memory)
    )


def _steps(record: Mapping[str, Any]) -> list[Block]:
    """Of one record: where a step's time goes."""
    found = dict(record)
    legend = [(COLOURS[phase], phase) for phase in ORDER if record["phases"][0][phase] > 0]
    blocks: list[Block] = [
        Flame("Where a step's time goes", "time of a step", frames_of(record), legend, NOTE),
        _phases(record),
    ]
    shown = Shown(memory=any(row["memory_bytes"] is not None for row in record["modules"]))
    for title, rows, _ in parts_of(found, ALL):
        head, cells = cost_cells(rows, shown)
        blocks.append(Fold(title.capitalize(), [Table(head, cells)]))
    return blocks


def _phases(record: Mapping[str, Any]) -> Rows:
    """A bar a rank: a mean step in its phases."""
    ranks = record["phases"][:MOST_RANKS]
    cells = np.zeros((len(ranks), 1, 1 + len(ORDER)))
    for at, one in enumerate(ranks):
        cells[at, 0, 1:] = [max(0.0, one[name]) / record["batches"] for name in ORDER]
    left = len(record["phases"]) - len(ranks)
    return Rows(
        "A step of each rank", Axis("time of a step", "s"), [f"rank {one['rank']}" for one in ranks], ["a mean step"],
        ORDER, cells, note="Means of watched steps." + (f" {left} more ranks are left out." if left else ""),
        colours=[COLOURS[name] for name in ORDER],
    )  # fmt: skip


def _activations(records: Sequence[Mapping[str, Any]]) -> list[Block]:
    """What each activation's layers took."""
    found = [dict(record) for record in records]
    rows = activation_rows(found)
    cells = np.zeros((len(rows), 1, 3))
    for at, row in enumerate(rows):
        cells[at, 0, 1:] = row["median_s"], row["backward_median_s"]
    names = [str(row["name"]) for row in rows]
    head, texts = activation_cells(found, Shown())
    return [
        Rows(
            "Activations: a call", Axis("time of a call", "s"), names, [""], ["forward", "backward"], cells,
            note="Medians of calls; of torch's backward means. The table has sums.",
            colours=[COLOURS["forward"], COLOURS["backward"]],
        ),
        Table(head, texts),
    ]  # fmt: skip
