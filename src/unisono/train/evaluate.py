"""Evaluation, shared by the ranks and exact: every sample is counted once, whatever the number of ranks.

The one idea: a part of the data is cut into fixed blocks; each rank evaluates some of them and leaves their sums in its
rows of a table. Adding the tables of all ranks adds zeros, which is exact, and the rows are then summed in one order.
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from unisono.comm.base import Communicator
from unisono.data.shards import blocks, shards_of_rank
from unisono.models.base import Model

BLOCK = 256


@final
@dataclass(frozen=True)
class Score:
    """Means over all samples of a part; accuracy is 0 for regression."""

    loss: float
    accuracy: float


def evaluate(comm: Communicator, model: Model, x: np.ndarray, y: np.ndarray) -> Score | None:
    """The score of `model` on the rows of x and y, equal on every rank; None if there are none."""
    pieces = blocks(len(x), BLOCK)
    if not pieces:
        return None
    table = np.zeros((len(pieces), 2))
    for number in shards_of_rank(len(pieces), comm.size, comm.rank):
        found = model.evaluate(x[pieces[number]][None], y[pieces[number]][None])
        table[number] = found.loss_sum[0], found.correct[0]
    comm.all_reduce(table)
    loss, correct = table.sum(axis=0).tolist()
    return Score(loss / len(x), correct / len(x))
