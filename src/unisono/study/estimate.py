"""How long a study will take: told from one epoch of one cell, and from the runs that are there already.

    trial = try_out(cell, timeout_s=60); estimate_s(plan, records, trial, cores=2)

The one idea: an estimate that is worth waiting for costs one epoch, not one run. Times of other cells are taken to be
those of a perfect speed-up on the cores that there are, so that the estimate is low where scaling is poor; a cell that
has been run counts with what it took.
"""

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import final

from unisono.study.cells import Cell
from unisono.study.process import FINISHED, run_cell
from unisono.study.run_order import Turn
from unisono.study.study import Record, latest


@final
@dataclass(frozen=True)
class Trial:
    """What one epoch of one cell took."""

    ranks: int
    start_s: float
    """All but training: start, data, evaluation, files."""
    epoch_s: float
    reason: str = ""
    """Why there is no number."""


def try_out(cell: Cell, timeout_s: float) -> Trial:
    """Runs one epoch of the cell, and leaves nothing."""
    with tempfile.TemporaryDirectory() as folder:
        short = Cell(cell.labels, cell.recipe.with_options(epochs=1))
        record = run_cell(short, Path(folder) / "recipe.toml", Path(folder) / "run", timeout_s)
    if record["status"] != FINISHED:
        return Trial(cell.recipe.ranks.count, 0.0, 0.0, record["reason"])
    train_s = record["summary"]["train_s"]
    return Trial(cell.recipe.ranks.count, max(0.0, record["elapsed_s"] - train_s), train_s)


def estimate_s(plan: Iterable[Turn[Cell]], records: Sequence[Record], trial: Trial, cores: int) -> float:
    """Seconds for the runs that are left."""
    total = 0.0
    for turn in plan:
        found = latest(records, turn.cell)
        if turn.repeat in found:
            continue
        if took := [record["elapsed_s"] for record in found.values()]:
            total += median(took)
        else:
            gain = min(turn.cell.recipe.ranks.count, cores) / min(trial.ranks, cores)
            total += trial.start_s + turn.cell.recipe.learning.epochs * trial.epoch_s / gain
    return total
