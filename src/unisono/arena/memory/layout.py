"""Sections: where named arrays lie in a segment.

The one idea: everybody who knows the names, lengths and types computes the same places. Each section starts on a page.

>>> Sections({"params": (2048, np.dtype(np.float32)), "losses": (8, np.dtype(np.float64))}).nbytes
12288
"""

from collections.abc import Mapping
from math import prod
from typing import Any, final

import numpy as np

from unisono.arena.memory.segment import PAGE, Segment


@final
class Sections:
    """`table`: name -> (elements or shape, dtype), in the order in which they lie."""

    def __init__(self, table: Mapping[str, tuple[int | tuple[int, ...], np.dtype]]) -> None:
        self._places: dict[str, tuple[int, tuple[int, ...], np.dtype]] = {}
        end = 0
        for name, (size, dtype) in table.items():
            shape = (size,) if isinstance(size, int) else size
            self._places[name] = end, shape, dtype
            end += -(-prod(shape) * dtype.itemsize // PAGE) * PAGE
        self.nbytes = end

    def pack(self) -> list[Any]:
        """The table as JSON, for another process; `unpack` takes it."""
        return [[name, list(shape), dtype.str] for name, (_, shape, dtype) in self._places.items()]

    @classmethod
    def unpack(cls, packed: list[Any]) -> "Sections":
        return cls({name: (tuple(shape), np.dtype(kind)) for name, shape, kind in packed})

    def array(self, segment: Segment, name: str) -> np.ndarray:
        """The array of that name in `segment`."""
        offset, shape, dtype = self._places[name]
        return segment.array(offset, prod(shape), dtype).reshape(shape)

    def words(self, segment: Segment, name: str) -> memoryview:
        """The same as int64 words, for flags."""
        offset, shape, _ = self._places[name]
        return segment.words(offset, prod(shape))
