"""PackedArrays: arrays of different kinds in one array of bytes, so that they travel in one message.

The one idea: everybody who knows names, shapes and types computes the same places.

>>> packed = PackedArrays({"sums": ((2, 2), np.dtype(np.float64)), "asked": ((1,), np.dtype(np.int64))})
>>> packed["asked"][0] = 1; packed.views(packed.data[None])[0]["asked"].tolist()
[1]

Places are on borders of 8 bytes. All machines must be of one kind: numbers travel as they lie in memory.
"""

from collections.abc import Mapping
from math import prod
from typing import TypeAlias, final

import numpy as np

Shapes: TypeAlias = Mapping[str, tuple[tuple[int, ...], np.dtype]]


@final
class PackedArrays:
    """`data`: the bytes to send; views of it by name."""

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes
        self._starts: dict[str, int] = {}
        end = 0
        for name, (shape, dtype) in shapes.items():
            self._starts[name] = end
            end += -(-prod(shape) * dtype.itemsize // 8) * 8
        self.data = np.zeros(end, np.uint8)
        self._own = self._view(self.data)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._own[name]

    def views(self, gathered: np.ndarray) -> list[dict[str, np.ndarray]]:
        """Of the packed arrays of all, one a row."""
        return [self._view(row) for row in gathered]

    def _view(self, data: np.ndarray) -> dict[str, np.ndarray]:
        return {
            name: data[start : start + prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
            for (name, start), (shape, dtype) in zip(self._starts.items(), self._shapes.values(), strict=True)
        }
