"""Evaluation, shared by the ranks and exact: every sample is counted once, whatever the number of ranks.

The one idea: a part of the data is cut into fixed blocks, a row of a table each, and whoever is there fills the rows
(`Strategy.evaluate`). The rows are then summed in one order.

    table = strategy.evaluate(position, blocks_of(x), measure_blocks(model, x, y), tell); score = score_of(table,
    len(x))
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from unisono.data.shards import blocks
from unisono.models.base import Model
from unisono.strategies.base import Measure

BLOCK = 256


@final
@dataclass(frozen=True)
class Score:
    """Means over all samples of a part; accuracy is 0 for regression."""

    loss: float
    accuracy: float


def blocks_of(x: np.ndarray) -> int:
    """How many blocks the rows of x make."""
    return -(-len(x) // BLOCK)


def measure_blocks(model: Model, x: np.ndarray, y: np.ndarray) -> Measure:
    """measure(i): the losses, and how many are right, of the samples of block i."""
    pieces = blocks(len(x), BLOCK)

    def measure(number: int) -> tuple[float, float]:
        found = model.evaluate(x[pieces[number]][None], y[pieces[number]][None])
        return float(found.loss_sum[0]), float(found.correct[0])

    return measure


def score_of(table: np.ndarray, samples: int) -> Score | None:
    """None if there were no samples."""
    if not samples:
        return None
    loss, correct = table.sum(axis=0).tolist()
    return Score(loss / samples, correct / samples)
