"""From the records of the short runs to the cost model, and how far it is from what was measured.

costs, checked = calibrate(calibration(recipe, samples), records.all, records.path, nbytes)
"""

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

from unisono.errors import UserError
from unisono.measure.prediction.cost import Cluster, Costs, local, node_step_s
from unisono.measure.prediction.fit import Point, fitted
from unisono.measure.prediction.network import Network
from unisono.measure.prediction.points import HELD_OUT, LOCAL_EVERY, point_of
from unisono.report.studies.background_load import background_load_of
from unisono.resources import usable_cores
from unisono.study.cells import Cell
from unisono.study.study import Record, counted, failure

HERE = Network("none", inf, 0.0)


def calibrate(
    cells: Sequence[Cell], records: Sequence[Record], path: Path, nbytes: int
) -> tuple[Costs, list[dict[str, Any]]]:
    """The constants; of every run what a step took and what the model says. A run that is held out may be missing."""
    points: list[tuple[Cell, Point]] = []
    others: list[dict[str, float | None]] = []
    for cell in cells:
        runs = counted(records, cell)
        if runs:
            points.append((cell, point_of(cell, [path / record["run"] for record in runs.values()], nbytes)))
            others.append(background_load_of(runs.values()))
        elif HELD_OUT not in cell.labels:
            raise UserError(
                f"the model cannot be calibrated without {cell.name}: {failure(records, cell) or 'not run yet'}",
                hint="let the same command go on; or give --samples-per-s, of one rank",
            )
    costs = fitted([point for cell, point in points if HELD_OUT not in cell.labels], usable_cores())
    return costs, [_checked(costs, *point) | met for point, met in zip(points, others, strict=True)]


def _checked(costs: Costs, cell: Cell, point: Point) -> dict[str, Any]:
    predicted_s, told = node_step_s(costs, point.work, point.ranks), ""
    if point.replicas:
        predicted_s, told = local(costs, point.work, Cluster(1, point.ranks, HERE), LOCAL_EVERY).step_s, ", local"
    ranks = "1 rank" if point.ranks == 1 else f"{point.ranks} ranks"
    return {
        "name": f"{ranks}, batch {cell.labels['batch_size']}, {point.work.shards} shards{told}",
        "predicted_s": predicted_s,
        "measured_s": point.step_s,
        "error": predicted_s / point.step_s - 1,
        "held_out": HELD_OUT in cell.labels,
    }
