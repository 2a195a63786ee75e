"""How optimizers walk over a chunk: in pieces that stay in the cache, with scratch that is made once.

The one idea: every operation is one pass of NumPy over a piece, and ten passes over a piece in the cache cost what one
over the memory does. Element-wise addition, multiplication, division and square root are correctly rounded whatever the
vector kernel, so where pieces and chunks begin has no influence on the bits.

>>> [(piece.start, piece.stop) for piece in pieces(40_000)]
[(0, 32768), (32768, 40000)]

Chunks that begin on a cache line (64 bytes), as they do in the arena, are up to a quarter faster.
"""

from collections.abc import Iterator
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from unisono import aligned

Array: TypeAlias = NDArray[np.float32]
"""1-d, float32, contiguous."""

PIECE = 32 * 1024
"""Elements: parameters, gradients, two states and scratch of a piece are 640 KiB, and a usual chunk is one piece."""

_LEAST = np.array(1e-36, np.float32)


def pieces(stop: int, start: int = 0) -> Iterator[slice]:
    """Slices of at most PIECE elements that cover start .. stop."""
    for first in range(start, stop, PIECE):
        yield slice(first, min(first + PIECE, stop))


def constant(value: float) -> Array:
    """A number for many calls, as an array without dimensions: NumPy takes those faster than numbers."""
    return np.array(value, np.float32)


@final
class Scratch:
    """Room for a piece of the gradient, and for one of the change that follows from it."""

    def __init__(self) -> None:
        self._gradient = aligned.empty(PIECE)
        self._change = aligned.empty(PIECE)
        self._small: NDArray[np.bool_] = np.empty(PIECE, np.bool_)

    def change(self, length: int) -> Array:
        """Room for anything; `gradient` and `flush` use it too while they work."""
        return self._change[:length]

    def gradient(self, params: Array, grads: Array, scale: float, decay: float) -> Array:
        """scale * grads + decay * params in scratch; `grads` itself where that is the same."""
        gradient = grads
        if scale != 1.0:
            gradient = np.multiply(grads, np.float32(scale), out=self._gradient[: len(grads)])
        if decay:
            penalty = np.multiply(params, np.float32(decay), out=self._change[: len(grads)])
            gradient = np.add(gradient, penalty, out=self._gradient[: len(grads)])
        return gradient

    def flush(self, vector: Array) -> None:
        """Sets to 0 what is hardly more. Sums that decay without new gradients (a dead unit's) would end as denormal
        numbers, stay there, rounded up at every step, and be 40 times slower for ever."""
        for piece in pieces(len(vector)):
            part = vector[piece]
            small = np.less(np.abs(part, out=self.change(len(part))), _LEAST, out=self._small[: len(part)])
            np.copyto(part, 0, where=small)
