"""Raw: what a source delivers, before anything was checked, split or scaled.

The one idea: sources only find arrays and name them (`ARRAYS`); `preparation.py` does the rest, once for all of them.

    raw = Raw("mine", {"train_x": x, "train_y": y})
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from unisono.data.dataset import ARRAYS, PARTS
from unisono.errors import UserError

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
    """Of text: its characters, each at the place that is its number; empty if numbers were given."""


def collect(name: str, found: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The arrays out of `found`, whose other keys are ignored; a `UserError` if x has no y, y no x, or there is no
    training part."""
    for part in PARTS:
        x, y = f"{part}_x", f"{part}_y"
        if (x in found) != (y in found):
            given, missing = (x, y) if x in found else (y, x)
            raise UserError(
                f"{name}: {given} is there, {missing} is not", hint=f"give both, or neither, of {x} and {y}"
            )
    if "train_x" not in found:
        raise UserError(
            f"{name}: train_x and train_y are missing; it holds {_listed(found) or 'nothing'}",
            hint=f"name the arrays {', '.join(ARRAYS)} (validation and test may be left out)",
        )
    return {key: _array(name, key, found[key]) for key in ARRAYS if key in found}


def _listed(found: Mapping[str, Any]) -> str:
    names = [str(key) for key in found]
    return ", ".join(names[:_MOST_NAMED]) + f" and {len(names) - _MOST_NAMED:,} others" * (len(names) > _MOST_NAMED)


def _array(name: str, key: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:  # rows of unlike length; a tensor that is not plain memory
        raise UserError(f"{name}: {key} cannot be made an array ({error})", hint="give a NumPy array") from None
