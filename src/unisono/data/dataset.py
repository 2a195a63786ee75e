"""Dataset: what everybody above works with. Float32 rows with labels or targets, or tokens, in three parts.

The one idea: every source ends in the same plain arrays, checked once, so no model or trainer asks again.

    dataset = load("digits"); dataset.train_x.shape, dataset.classes        # ((1442, 64), 10)

Limits: everything is in memory. The arrays are read-only: ranks may share them.
"""

from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np

from unisono.data.normalisation import Normalisation

PARTS = ("train", "validation", "test")
ARRAYS = tuple(f"{part}_{axis}" for part in PARTS for axis in "xy")
"""train_x, train_y, validation_x ...: the names in this class, in .npz files, in directories and in dicts."""


@final
@dataclass(frozen=True, eq=False)
class Dataset:
    """x: (rows, features) float32, C-contiguous. y: (rows,) int64 labels, or (rows, outputs) float32 targets.
    Text: x and y are tokens, (rows, T) int64, below `classes`; y holds the token that follows each of x.

    The validation and the test part may have no rows; their other dimensions are those of the training part.
    """

    name: str
    train_x: np.ndarray
    train_y: np.ndarray
    validation_x: np.ndarray
    validation_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    classes: int
    """How many classes the labels tell apart; 0 for regression; for text the size of the vocabulary."""
    shape: tuple[int, ...]
    """One sample as it was before it became a row: (28, 28)."""
    normalisation: Normalisation = field(default_factory=Normalisation)
    """What was done to every x: new samples need the same."""
    vocabulary: str = ""
    """Of text: its characters, each at the place that is its number."""

    @property
    def tokens(self) -> bool:
        """Whether x and y are text."""
        return self.train_x.dtype.kind == "i"

    @property
    def features(self) -> int:
        return int(self.train_x.shape[1])

    @property
    def outputs(self) -> int:
        """What a model must put out for each sample: a number per class, or the targets."""
        return self.classes or int(self.train_y.shape[1])

    def part(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """(x, y) of "train", "validation" or "test"."""
        arrays = self.arrays()
        return arrays[f"{name}_x"], arrays[f"{name}_y"]

    def arrays(self) -> dict[str, np.ndarray]:
        """All six by name, in the order of `ARRAYS`."""
        return {name: getattr(self, name) for name in ARRAYS}

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays().values())


def freeze(dataset: Dataset) -> Dataset:
    """The same with read-only views: ranks that share memory cannot spoil each other's data, nor can one alone."""
    views: dict[str, Any] = {name: array.view() for name, array in dataset.arrays().items()}
    for view in views.values():
        view.flags.writeable = False
    return replace(dataset, **views)
