"""Dataset: float32 rows with labels or targets, or tokens, in three parts; and the types on the way to one.

The one idea: a source only finds arrays and names them (`Raw`), as `DataOptions` ask; `preparation.py` turns every
`Raw` into the same plain, checked arrays (`Dataset`), so models and trainers need no checks of their own.

    raw = Raw("mine", {"train_x": x, "train_y": y})
    dataset = load("digits", DataOptions(seed=7)); dataset.train_x.shape, dataset.classes        # ((1442, 64), 10)

Limits: everything is in memory. The arrays of a dataset are read-only: ranks may share them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, final

import numpy as np

from unisono.data.normalisation import Normalisation
from unisono.errors import UserError

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called while a file is fetched: its name, bytes so far, bytes in all (0: the server did not say)."""


@final
@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """How data are found, fetched, split and scaled."""

    data_dir: str = ""
    """Where to look for dataset files first, and where to put fetched ones; ~/.cache/unisono/NAME without it."""

    validation: float = 0.0
    """Fraction of the training part that is held out for validation, such as 0.1; drawn by the seed."""

    normalise: str = "auto"
    """none, unit (0 to 1), standard (mean 0, deviation 1), or auto: unit for images, none for the rest."""

    seed: int = 0
    """Decides the validation part and synthetic data."""

    download: bool = True
    """Whether files that are nowhere on this machine may be fetched."""

    base_url: str = ""
    """Fetch from here instead of the dataset's usual address; file names are appended."""

    timeout_s: float = 30.0
    """How long the server may be silent."""

    progress: Progress | None = None


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
    """Text only: its characters, each at the index that is its number."""

    @property
    def tokens(self) -> bool:
        """Whether x and y are text."""
        return self.train_x.dtype.kind == "i"

    @property
    def features(self) -> int:
        return int(self.train_x.shape[1])

    @property
    def outputs(self) -> int:
        """How many numbers a model returns for each sample: one per class, or one per target."""
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
    """The same with read-only views, so no rank can change data that others share."""
    views: dict[str, Any] = {name: array.view() for name, array in dataset.arrays().items()}
    for view in views.values():
        view.flags.writeable = False
    return replace(dataset, **views)


_MOST_NAMED = 20


@final
@dataclass(frozen=True, eq=False)
class Raw:
    """`arrays` has train_x and train_y at least; x is (rows, ...) of any numeric type."""

    name: str
    arrays: Mapping[str, np.ndarray]
    classes: int = 0
    """0: to be counted from the labels."""
    normalise: str = "none"
    """What "auto" means for this source."""
    tokens: bool = False
    """x and y are text: whole numbers (rows, T) below `classes`, which are neither scaled nor cast to float32."""
    vocabulary: str = ""
    """Text only: its characters, each at the index that is its number; empty if numbers were given."""


def collect(name: str, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The arrays in `given`, whose other keys are ignored; a `UserError` for x without y, y without x, or no training
    part."""
    for part in PARTS:
        x, y = f"{part}_x", f"{part}_y"
        if (x in given) != (y in given):
            present, missing = (x, y) if x in given else (y, x)
            raise UserError(
                f"{name}: {present} is there, {missing} is not", hint=f"give both, or neither, of {x} and {y}"
            )
    if "train_x" not in given:
        raise UserError(
            f"{name}: train_x and train_y are missing; it holds {_listed(given) or 'nothing'}",
            hint=f"name the arrays {', '.join(ARRAYS)} (validation and test may be left out)",
        )
    return {key: _array(name, key, given[key]) for key in ARRAYS if key in given}


def _listed(given: Mapping[str, Any]) -> str:
    names = [str(key) for key in given]
    return ", ".join(names[:_MOST_NAMED]) + f" and {len(names) - _MOST_NAMED:,} others" * (len(names) > _MOST_NAMED)


def _array(name: str, key: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:  # rows of unlike length; a tensor that is not plain memory
        raise UserError(f"{name}: {key} cannot be made an array ({error})", hint="give a NumPy array") from None
