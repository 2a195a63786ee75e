"""Normalisation: what is subtracted from every x, and what it is divided by.

The one idea: both come from the training part alone, and are applied to all parts; so nothing of the test part leaks
into training.

- `none`: x as it is.
- `unit`: the smallest value of the training part becomes 0, the largest 1.
- `standard`: mean 0 and deviation 1, for each feature; for images (samples of two or more dimensions) one mean and one
  deviation for all pixels, because those that are nearly always black would blow up.

    shift, scale = measure("unit", train_x, shape=(28, 28)); apply(test_x, shift, scale)

`Normalisation` keeps the constants: with the data, and in the file of the weights, for samples that come later.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np

from unisono.data.shards import blocks
from unisono.errors import unknown_name

KINDS = ("none", "unit", "standard")
_BLOCK_ROWS = 4096


@final
@dataclass(frozen=True, eq=False)
class Normalisation:
    """What was done to samples: (x - shift) / scale, in float32."""

    kind: str = "none"
    shift: np.ndarray = field(default_factory=lambda: np.zeros(1, np.float32))
    """(1,) or (features,), as `scale`."""
    scale: np.ndarray = field(default_factory=lambda: np.ones(1, np.float32))

    @cached_property
    def plain(self) -> dict[str, Any]:
        """For JSON. Numbers have as many digits as a float32 needs to come back bit by bit."""
        numbers = {name: [float(str(number)) for number in array] for name, array in self._arrays.items()}
        return {"kind": self.kind, **numbers}

    @staticmethod
    def read(plain: Mapping[str, Any]) -> "Normalisation":
        """Back from `plain`; LookupError, TypeError or ValueError if it is damaged."""
        shift, scale = (np.array(plain[name], np.float32) for name in ("shift", "scale"))
        if plain["kind"] not in KINDS or shift.ndim != 1 or shift.shape != scale.shape or not len(shift):
            raise ValueError("no normalisation that we know")
        return Normalisation(plain["kind"], shift, scale)

    @property
    def _arrays(self) -> dict[str, np.ndarray]:
        return {"shift": self.shift, "scale": self.scale}


def measure(kind: str, x: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(shift, scale), each float32 of shape (1,) or (features,); a scale is never 0."""
    if kind not in KINDS:
        raise unknown_name("normalisation", kind, [*KINDS, "auto"])
    shift, scale = np.zeros(1), np.ones(1)
    if kind == "unit":
        shift = x.min(keepdims=True)[0].astype(np.float64)
        scale = x.max(keepdims=True)[0] - shift
    elif kind == "standard":
        shift = _mean(x, np.zeros(1), 1, len(shape) > 1)
        scale = np.sqrt(_mean(x, shift, 2, len(shape) > 1))
    scale = scale.astype(np.float32)
    scale[scale == 0] = 1  # a constant: there is nothing to scale
    return shift.astype(np.float32), scale


def apply(x: np.ndarray, shift: np.ndarray, scale: np.ndarray) -> None:
    """In place: (x - shift) / scale."""
    np.subtract(x, shift, out=x)
    np.divide(x, scale, out=x)


def _mean(x: np.ndarray, shift: np.ndarray, power: int, over_all: bool) -> np.ndarray:
    """The mean of (x - shift)**power over rows, or rows and features; block by block, in double precision."""
    total = np.zeros(x.shape[1])
    for block in blocks(len(x), _BLOCK_ROWS):
        total += ((x[block] - shift) ** power).sum(axis=0)
    mean = total / len(x)
    return mean.mean(keepdims=True) if over_all else mean
