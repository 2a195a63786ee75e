"""Calibration: the short runs that a prediction is made of, the cost model from their records, and its errors.

    cells = calibration(recipe, samples=60000); point = point_of(cells[0], [Path("studies/mine/runs/a-0")], nbytes)
    costs, checked = calibrate(cells, records.all, records.path, nbytes)

The one idea: a constant can be told from another only if they vary apart, so batch, shards and ranks do; and a model is
worth what it says of points that it was not made of, so some are held out.

Limits: the runs are in shared memory on this machine, and none is asynchronous. The first epoch, which sets things up,
does not count; of the others the fastest does, because whatever else a machine does makes epochs longer, never shorter.
"""

import math
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

from unisono.errors import UserError
from unisono.measure.prediction.cost import Cluster, Costs, Network, Work, local, node_step_s
from unisono.measure.prediction.fit import Point, fitted
from unisono.recipe import DEFAULT_SHARDS, Recipe
from unisono.report.run.files import is_number
from unisono.report.run.load import load
from unisono.report.studies.background_load import background_load_of
from unisono.resources import usable_cores
from unisono.strategies.registry import of
from unisono.study.cells import Cell
from unisono.study.study import Record, counted, failure

ENOUGH_SAMPLES = 400_000
"""So many are trained on in each run, in 5 to 40 epochs."""
PARTS = ("compute_s", "data_s", "update_s", "wait_s")
HELD_OUT = "held out"
LOCAL_EVERY = 16
"""Steps between the averages of the replicas of the run that checks what is said of them."""
HERE = Network("none", inf, 0.0)


def usual_batch(recipe: Recipe, samples: int) -> int:
    """The batch of all ranks of the recipe together."""
    if recipe.learning.batch_size_per_rank:
        return min(samples, recipe.learning.batch_size_per_rank * recipe.ranks.count)
    return samples if isinstance(recipe.learning.batch_size, str) else min(samples, recipe.learning.batch_size)


def usual_shards(recipe: Recipe, batch: int) -> int:
    return recipe.ranks.shards or min(DEFAULT_SHARDS, batch)


def calibration(recipe: Recipe, samples: int) -> list[Cell]:
    """Runs to fit, then runs to check, which have the label. A `UserError` if no model could be made of them."""
    if 2 * recipe.ranks.threads > max(2, usable_cores()):
        raise UserError(
            f"predict with --threads {recipe.ranks.threads}: it measures 2 ranks, which need a core for each thread, "
            "and "
            f"there are {usable_cores()}",
            hint="give fewer --threads; or --samples-per-s, of one rank, and nothing is measured",
        )
    batch = max(4, min(usual_batch(recipe, samples), samples // 4))
    shards = min(batch, max(4, usual_shards(recipe, batch)))
    epochs = min(40, max(5, math.ceil(ENOUGH_SAMPLES / samples)))
    plain = recipe.with_options(
        strategy="sync", allreduce="arena", transport="auto", batch_size_per_rank=0, scale_lr="none",
        epochs=epochs, eval_every=epochs, target_accuracy=0.0, snapshot_every="", slow="",
    )  # fmt: skip
    crowd = 2 * usable_cores()
    fit = [(1, batch, shards), (1, 2 * batch, shards), (1, batch, shards // 2), (2, batch, shards)]
    fit += [(crowd, batch, shards)] if crowd <= shards else []
    check = [(2, 2 * batch, shards), (2, batch, shards // 2), (1, 4 * batch, shards)]
    check += [(crowd, 2 * batch, shards)] if crowd <= shards else []
    cells = [
        _cell(plain.with_options(ranks=ranks, batch_size=size, shards=cut), held_out=late)
        for late, made in ((False, fit), (True, check))
        for ranks, size, cut in made
    ]
    apart = plain.with_options(batch_size=batch, shards=shards, strategy="local", sync_every=LOCAL_EVERY)
    return [
        *cells,
        _cell(apart.with_options(ranks=1), held_out=False),
        _cell(apart.with_options(ranks=2), held_out=True),
    ]


def _cell(recipe: Recipe, *, held_out: bool) -> Cell:
    labels = {name: f"{recipe.option(name)}" for name in ("ranks", "batch_size", "shards")}
    labels |= {"strategy": recipe.strategy.name} if of(recipe).shards_are_replicas else {}
    return Cell(labels | ({HELD_OUT: "yes"} if held_out else {}), recipe)


def point_of(cell: Cell, runs: Sequence[Path], nbytes: int) -> Point:
    """What a step took in the fastest epoch of all these runs."""
    found = min((_fastest(run) for run in runs), key=lambda parts: parts["step_s"])
    work = Work(
        round(found.pop("batch")),
        cell.recipe.ranks.shards,
        nbytes,
        round(found.pop("samples")),
        cell.recipe.ranks.threads,
    )
    return Point(cell.name, cell.recipe.ranks.count, work, replicas=of(cell.recipe).shards_are_replicas, **found)


def _fastest(path: Path) -> dict[str, float]:
    """A step in the fastest epoch of one run: seconds, in all and by its parts, and samples; samples of an epoch."""
    run = load(path)
    counts: dict[str, Any] = {name: run.summary.get(name) for name in ("epochs", "steps", "samples")}
    times = run.numbers("epoch_s")
    missing = [name for name, count in counts.items() if not is_number(count) or not count > 0]
    if missing or not len(times):
        raise UserError(
            f"the run {path} is damaged: {f'{missing[0]} in its summary is no number' if missing else 'no epochs'}",
            hint="remove its line from cells.jsonl of the study, and the same command runs it again",
        )
    steps, samples = (float(counts[name] / counts["epochs"]) for name in ("steps", "samples"))
    at = int(times[1:].argmin()) + 1 if len(times) > 1 else 0
    parts = {name: float(run.by_rank(name)[at].mean()) / steps for name in PARTS}
    return parts | {"step_s": float(times[at]) / steps, "batch": samples / steps, "samples": samples}


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
