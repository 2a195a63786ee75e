"""Time to accuracy: of settings whose batches differ the fastest is not the one with the most samples per second.

The one idea: a batch decides how many samples a network needs, which no short trial tells. So the best setting of each
batch is trained as `unisono train` would, until it reaches the accuracy, and the time of training counts.

    reached = train_to_target(records, cells, timeout_s=120)

Limits: one run each, with the recipe's seed; one that does not reach it within its epochs, or in time, is out.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from unisono.measure.tune.tuning import TRAINING
from unisono.study.cells import Cell
from unisono.study.process import FAILED, run_cell
from unisono.study.records import Records


def train_to_target(
    records: Records,
    cells: Sequence[Cell],
    timeout_s: float,
    say: Callable[[dict[str, Any]], None] = lambda record: None,
) -> dict[str, float]:
    """Seconds of training until the accuracy was reached, by digest, of those that reached it. Together they take about
    `timeout_s`: whoever is slower than that is ended."""
    reached: dict[str, float] = {}
    deadline = time.monotonic() + timeout_s
    for cell in cells:
        earlier = [one for one in records.all if one["what"] == TRAINING and one["digest"] == cell.digest]
        record = earlier[0] if earlier else _train(records, cell, deadline - time.monotonic())
        if not earlier:
            say(record)
        if record["train_s"] is not None:
            reached[cell.digest] = record["train_s"]
    return reached


def _train(records: Records, cell: Cell, left_s: float) -> dict[str, Any]:
    record: dict[str, Any] = {"what": TRAINING, "cell": cell.name, "labels": dict(cell.labels), "digest": cell.digest}
    if left_s <= 0:
        found: dict[str, Any] = {"status": FAILED, "reason": "there was no time left (--seconds)", "exit_code": None}
    else:
        folder = records.path / "cells"
        run = records.clear(f"runs/{cell.slug}")
        found = run_cell(cell, folder / f"{cell.slug}.toml", run, left_s)
    summary = found.pop("summary", None) or {}
    record |= {"elapsed_s": 0.0} | found
    record["train_s"] = summary["train_s"] if summary.get("stopped_early") else None
    record["test_accuracy"] = summary.get("test_accuracy")
    if summary and not summary.get("stopped_early"):
        record |= {"status": FAILED, "reason": f"it did not reach {cell.recipe.target_accuracy:g} within its epochs"}
    records.add(record)
    return record
