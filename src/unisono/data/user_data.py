"""The user's own code: `path.py:factory` returns the data.

The one idea: the factory returns a `Dataset`, or a dict of arrays by the usual names, and what it returns is checked
like any other source. `user_code/function.py` runs it.

    # mine.py
    def data():
        return {"train_x": x, "train_y": y, "test_x": u, "test_y": v, "classes": 3}       # classes may be left out

    unisono data check mine.py:data

The file runs with the rights of the user, as `python mine.py` would.
"""

import math
from collections.abc import Mapping
from operator import index
from typing import Any

import numpy as np

from unisono.data.dataset import ARRAYS, Dataset, Raw, collect
from unisono.errors import UserError, unknown_name
from unisono.user_code.function import UserFunction


def load_user_data(spec: str) -> Raw:
    """Calls the factory of `path.py:factory` without arguments."""
    made = UserFunction(spec)()
    if isinstance(made, Dataset):
        return _from_dataset(spec, made)
    return _from_mapping(spec, made)


def _from_dataset(spec: str, made: Dataset) -> Raw:
    arrays = {key: np.asarray(array) for key, array in made.arrays().items() if len(array)}
    for key in ("train_x", "validation_x", "test_x"):
        if key in arrays and arrays[key].shape[1:] != (math.prod(made.shape),):
            raise UserError(
                f"{spec}: {key} has shape {arrays[key].shape}, but one sample has shape {made.shape}",
                hint="give x as (rows, features), and as shape one whose product is the number of features",
            )
        if key in arrays:
            arrays[key] = arrays[key].reshape(-1, *made.shape)
    return Raw(made.name, collect(spec, arrays), made.classes, tokens=_are_tokens(arrays))


def _are_tokens(arrays: Mapping[str, np.ndarray]) -> bool:
    """Whether a Dataset holds text: a whole number for each whole number. Rows of one are labels."""
    x, y = arrays.get("train_x", np.empty(0)), arrays.get("train_y", np.empty(0))
    return x.dtype.kind == y.dtype.kind == "i" and x.shape == y.shape and x.ndim == 2 and x.shape[1] > 1


def _from_mapping(spec: str, made: Any) -> Raw:
    if any(kind.__module__.startswith("torch.utils.data") for kind in type(made).__mro__):
        raise UserError(
            f"{spec} returned {type(made).__name__}, a torch Dataset, whose items come one by one; this needs arrays",
            hint="return a dict with train_x and train_y; torch's Datasets, with workers and random augmentation, are "
            "for your own loop: world.batches(dataset, ...), see docs/own-loop.md",
        )
    if not isinstance(made, Mapping):
        raise UserError(
            f"{spec} returned {type(made).__name__}, not a Dataset or a dict of arrays",
            hint=f"return a dict with train_x and train_y; it may also have {', '.join(ARRAYS[2:])}, classes",
        )
    for key in made:
        if key not in (*ARRAYS, "classes"):
            raise unknown_name(f"key in what {spec} returned:", str(key), [*ARRAYS, "classes"])
    try:
        classes = index(made.get("classes", 0))
    except TypeError:
        classes = -1
    if classes < 0:
        raise UserError(
            f"{spec} returned classes={made['classes']!r}", hint="give a whole number, or leave it out: it is counted"
        )
    return Raw(spec, collect(spec, made), classes)
