"""Time to accuracy: of settings whose batches differ the fastest is not the one with the most samples per second.

The one idea: a batch decides how many samples a network needs, which no short trial tells. So the best setting of each
batch is trained as `unisono train` would, until it reaches the accuracy, and the time of training counts.

    reached = train_to_target(records, cells, timeout_s=120)

Limits: one run each, with the recipe's seed; one that does not reach it within its epochs, or in time, is out.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from unisono.measure.tune.search import TRAINING
from unisono.study.cell_process import FAILED, run_cell
from unisono.study.cells import Cell
from unisono.study.study_directory import Records, end_if_refused


def train_to_target(
    records: Records,
    cells: Sequence[Cell],
    timeout_s: float,
    say: Callable[[dict[str, Any]], None] = lambda record: None,
    *,
    retry: bool = False,
) -> dict[str, float]:
    """Seconds of training until the accuracy was reached, by digest, of those that reached it. Together they take about
    `timeout_s`: a run that takes longer is ended, and tried again when there is more time. retry: all that failed.
    """
    reached: dict[str, float] = {}
    deadline = time.monotonic() + timeout_s
    for cell in cells:
        earlier = [one for one in records.all if one["what"] == TRAINING and one["digest"] == cell.digest]
        left_s = max(0.0, deadline - time.monotonic())
        if not earlier or _may_go_now(earlier[-1], left_s, retry=retry):
            record = _train(records, cell, left_s)
            say(record)
        else:
            record = earlier[-1]
        if record["train_s"] is not None:
            reached[cell.digest] = record["train_s"]
    return reached


def _may_go_now(record: dict[str, Any], left_s: float, *, retry: bool) -> bool:
    """Whether one that failed is worth another: it had less time, or the user says so."""
    return record["status"] == FAILED and (retry or record.get("limit_s", left_s) < left_s)


def _train(records: Records, cell: Cell, left_s: float) -> dict[str, Any]:
    record: dict[str, Any] = {"what": TRAINING, "cell": cell.name, "labels": dict(cell.labels), "digest": cell.digest}
    if left_s <= 0:
        found: dict[str, Any] = {"status": FAILED, "exit_code": None}
    else:
        folder = records.path / "cells"
        run = records.clear(f"runs/{cell.slug}")
        found = run_cell(cell, folder / f"{cell.slug}.toml", run, left_s)
        end_if_refused(found, run)
    summary = found.pop("summary", None) or {}
    record |= {"elapsed_s": 0.0} | found
    if record["exit_code"] is None:
        record |= {"limit_s": left_s, "reason": f"it was not there after the {left_s:.0f} s that were left (--seconds)"}
    record["train_s"] = summary["train_s"] if summary.get("stopped_early") else None
    record["test_accuracy"] = summary.get("test_accuracy")
    if summary and not summary.get("stopped_early"):
        record |= {
            "status": FAILED,
            "reason": f"it did not reach {cell.recipe.learning.target_accuracy:g} within its epochs",
        }
    records.add(record)
    return record
