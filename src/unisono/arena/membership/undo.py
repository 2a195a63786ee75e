"""Undo: how an update in place is taken back when its maker, or anybody, dies in the middle of it.

The one idea: before an owner changes its stretch of a vector, it copies the old values to the same place of a twin, and
then marks the stretch. Whoever finds a mark of the round that must be redone copies the old values back.

    undo = Undo(words, size, vectors, twins); undo.keep(slot, position, low, high)
    undo.restore(position)                                     # the supervisor, while everybody stands still

Addresses never change, so models may hold views of the vectors for ever.
"""

from collections.abc import Sequence
from typing import final

import numpy as np

from unisono.arena.membership.protocol import MARKS, Words, line
from unisono.arena.memory.fence import fence

_POSITION, _LOW, _HIGH = range(3)


@final
class Undo:
    """For vectors of one length, or arrays of so many rows; `number` (0 or 1) tells two groups of them apart."""

    def __init__(
        self, words: Words, size: int, vectors: Sequence[np.ndarray], twins: Sequence[np.ndarray], number: int = 0
    ) -> None:
        self._words, self._size = words, size
        self._pairs = list(zip(vectors, twins, strict=True))
        self._at = MARKS + 3 * number

    def keep(self, slot: int, position: int, low: int, high: int) -> None:
        """Old values first, then the bounds, then the mark."""
        for vector, twin in self._pairs:
            twin[low:high] = vector[low:high]
        words, at = self._words, line(slot) + self._at
        words[at + _LOW], words[at + _HIGH] = low, high
        if fence is not None:
            fence()
        words[at + _POSITION] = position
        if fence is not None:
            fence()

    def restore(self, position: int) -> list[int]:
        """Takes back every marked stretch of round `position`, and its mark; the ranks whose marks these were."""
        words, found = self._words, []
        for slot in range(self._size):
            at = line(slot) + self._at
            if words[at + _POSITION] == position:
                low, high = words[at + _LOW], words[at + _HIGH]
                for vector, twin in self._pairs:
                    vector[low:high] = twin[low:high]
                words[at + _POSITION] = 0
                found.append(slot)
        return found
