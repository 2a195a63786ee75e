"""Optimizer: how a chunk of the parameters changes, given the same chunk of the gradients.

The one idea: an optimizer is element-wise on flat vectors and holds no state of its own. State vectors belong to the
caller (they lie in shared memory, and in snapshots), so the owner of a chunk can update it; what an element needs to
know of the others (clipping, LARS) arrives as a `Scale`. So the bits do not depend on how the vector is cut.

    state = tuple(np.zeros_like(params) for _ in optimizer.state_names)
    optimizer.update(params, grads, state, lr=0.1, step=1)

A chunk is updated in pieces that stay in the cache, with scratch memory that is allocated once: each operation is one
pass of NumPy over a piece, and ten passes over a piece in the cache cost as much as one over the memory. Element-wise
addition, multiplication, division and square root are correctly rounded by every vector kernel, so it does not matter
for the bits where pieces and chunks begin.

>>> [(piece.start, piece.stop) for piece in pieces(40_000)]
[(0, 32768), (32768, 40000)]

Limits: float32, 1-d, contiguous. One object is for one thread, because of its scratch memory. Chunks that begin on a
cache line (64 bytes), as in the arena, are up to a quarter faster. Every 64 steps state below 1e-36 is set to 0,
because denormal numbers are slow (`Scratch.flush`). A run that diverges overflows here, and NumPy warns: a trainer that
checks its losses can silence that around its loop (`np.errstate`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from unisono import aligned
from unisono.optim.options import OptimizerOptions

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


Rates: TypeAlias = Sequence[tuple[int, int, float]]
"""(start, stop, factor): the learning rate of the elements [start, stop) of a chunk is multiplied by `factor`."""


@final
@dataclass(frozen=True)
class Scale:
    """What norms decide about a step; `gradient_norms.py` computes it."""

    gradients: float = 1.0
    """A factor for all gradients: clipping's."""
    rates: Rates | None = None
    """LARS' factors for each parameter's share of the chunk; None: 1 for all. Elements in no range are left alone."""


UNSCALED = Scale()

_FLUSH_STEPS = 64
"""How often state is flushed (`Scratch.flush`); by the step's number alone, so that it is the same for all chunks."""


class Optimizer(ABC):
    """Updates chunks in place."""

    state_names: tuple[str, ...] = ()
    """The vectors that `update` is given as `state`, in this order: as long as the parameters, zero at the start."""
    counts = False
    """Whether the number of a step decides what it does: then each parameter's are counted by itself."""

    def __init__(self, options: OptimizerOptions) -> None:
        self.options = options
        self._scratch = Scratch()

    def update(
        self, params: Array, grads: Array, state: Sequence[Array], lr: float, step: int, scale: Scale = UNSCALED
    ) -> None:
        """One step on chunks of equal length, which must not overlap: changes `params` and `state`, only reads `grads`.
        `step` counts from 1."""
        self._update(params, grads, state, lr, step, scale)
        if step % _FLUSH_STEPS == 0:
            for vector in state:
                self._scratch.flush(vector)

    @abstractmethod
    def _update(self, params: Array, grads: Array, state: Sequence[Array], lr: float, step: int, scale: Scale) -> None:
        """The formulas."""
