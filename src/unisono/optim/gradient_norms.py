"""Norms of gradients and parameters, for clipping and LARS, with bits that do not depend on how the vector is cut.

`Segments` computes norms. The one idea: a *piece* is the intersection of a parameter and a block of the flat vector (at
most 1024 elements), and the sum of squares is taken piece by piece. Chunks end on blocks, so every piece lies in one
chunk: its owner writes the piece's sum to the piece's place in an array that all ranks share; after a barrier each rank
combines all of them, in the order of the table. Sums are float64, in which squares of float32 are exact.

>>> segments = Segments([(0, 3), (3, 2)], length=5); sums = segments.empty_sums()
>>> segments.square_sums(np.float32([1, 2, 2, 0, 4]), 0, sums)
>>> segments.global_norm(sums), segments.parameter_norms(sums).tolist()
(5.0, [3.0, 4.0])

The sum of a piece has the same bits in any chunk because `np.add.reduceat` over contiguous float64 adds pairwise inside
one piece, by its length alone; a test holds this. Gaps between parameters are pieces as well: summed, but never used.

`Scaling` turns norms into a `Scale`, in two halves with a barrier (NORMS) between. Before it every rank publishes the
sums of squares of its own chunk, after it every rank computes the same `Scale` from all of them.

    scaling = Scaling(options, segments, adapted)               # one-dimensional parameters are not adapted
    if scaling.rows:                                            # shared: float64, (rows, segments.count)
        scaling.publish(params, grads, start, shared); barrier(); scale = scaling.scale(shared, start, stop)

Clipping is that of torch.nn.utils.clip_grad_norm_: all gradients times min(1, clip / (norm + 1e-6)). A norm that is not
a number makes all gradients so, as in torch: the loss shows it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from unisono.arena.reduction_tree import BLOCK
from unisono.optim.base import UNSCALED, Array, Rates, Scale
from unisono.optim.options import OptimizerOptions

Sums: TypeAlias = NDArray[np.float64]
"""One float64 for each piece of the whole vector; 1-d, contiguous."""

_ROOM = 16 * BLOCK
"""Elements whose squares are held at once: 128 KiB."""


@final
@dataclass(frozen=True)
class _Walk:
    """Elements [low, high) of a chunk, at most _ROOM of them, and where the pieces in there begin and are to go."""

    low: int
    high: int
    begins: NDArray[np.intp]
    places: slice


Ranges: TypeAlias = list[tuple[int, int, int]]
"""(low, high, parameter) for every parameter that has elements in a chunk, counted from the chunk's start."""


@final
class Segments:
    """The table of pieces. `spans`: (offset, length) of each parameter, ascending; `length`: of the vector, padded."""

    def __init__(self, spans: Sequence[tuple[int, int]], length: int) -> None:
        offsets = np.array([offset for offset, _ in spans], np.intp)
        ends = offsets + np.array([count for _, count in spans], np.intp)
        if np.any(ends < offsets) or np.any(offsets[1:] < ends[:-1]) or np.any(ends > length):
            raise ValueError(
                f"parameters must be in ascending order within {length} elements, and not overlap: {spans}"
            )
        self.length = length
        borders = np.unique(np.concatenate([offsets, ends, np.arange(0, length, BLOCK), [0, length]]))
        self._begins = borders[:-1]
        self.count = len(self._begins)
        """How many pieces there are."""
        self._spans = list(zip(offsets.tolist(), ends.tolist(), strict=True))
        # The pieces of a parameter stand together; gaps are runs as well.
        filled = np.flatnonzero(ends > offsets)
        starts = np.unique(np.concatenate([offsets[filled], ends[filled], [0]]))
        self._runs = np.searchsorted(self._begins, starts[starts < length])
        self._run_of_filled = np.searchsorted(starts, offsets[filled])
        self._filled = filled
        self._squares: Sums = np.empty(min(_ROOM, length), np.float64)
        self._chunks: dict[tuple[int, int], tuple[list[_Walk], Ranges]] = {}

    def empty_sums(self) -> Sums:
        """An array for the sums of all pieces, where ranks share no memory."""
        return np.zeros(self.count)

    def square_sums(self, chunk: Array, start: int, out: Sums) -> None:
        """The sums of squares of `chunk`'s pieces, at their places in `out`; `chunk` begins at element `start` of the
        vector, on a block."""
        for walk in self._chunk(start, start + len(chunk))[0]:
            squares = self._squares[: walk.high - walk.low]
            squares[:] = chunk[walk.low : walk.high]  # twice as fast as converting inside the product
            np.multiply(squares, squares, out=squares)
            np.add.reduceat(squares, walk.begins, out=out[walk.places])

    def parameter_norms(self, sums: Sums) -> Sums:
        """The norm of each parameter."""
        norms = np.zeros(len(self._spans))
        norms[self._filled] = np.sqrt(self._run_sums(sums))
        return norms

    def global_norm(self, sums: Sums) -> float:
        """The norm of all parameters together."""
        return sqrt(np.add.reduce(self._run_sums(sums)))

    def ranges(self, start: int, stop: int) -> Ranges:
        """Which elements of the chunk [start, stop) belong to which parameter."""
        return self._chunk(start, stop)[1]

    def _run_sums(self, sums: Sums) -> Sums:
        """The sum of squares of each parameter that has elements."""
        summed: Sums = np.add.reduceat(sums, self._runs)[self._run_of_filled]
        return summed

    def _chunk(self, start: int, stop: int) -> tuple[list[_Walk], Ranges]:
        """Worked out once: a rank asks for the same chunk at every step."""
        if (start, stop) not in self._chunks:
            if start % BLOCK or not 0 <= start <= stop <= self.length or (stop % BLOCK and stop != self.length):
                raise ValueError(f"chunk [{start}, {stop}) of {self.length} elements is not cut on blocks of {BLOCK}")
            walks = [self._walk(start, low, min(low + _ROOM, stop)) for low in range(start, stop, _ROOM)]
            ranges = [
                (max(offset, start) - start, min(end, stop) - start, parameter)
                for parameter, (offset, end) in enumerate(self._spans)
                if max(offset, start) < min(end, stop)
            ]
            self._chunks[start, stop] = walks, ranges
        return self._chunks[start, stop]

    def _walk(self, start: int, low: int, high: int) -> _Walk:
        first, last = np.searchsorted(self._begins, [low, high]).tolist()
        return _Walk(low - start, high - start, self._begins[first:last] - low, slice(first, last))


_GRADIENTS, _WEIGHTS = 0, 1


@final
class Scaling:
    """One rank's part of the phase; `adapted[i]`: whether LARS adapts parameter i."""

    def __init__(self, options: OptimizerOptions, segments: Segments, adapted: Sequence[bool]) -> None:
        self._options = options
        self._segments = segments
        self._adapted = np.array(adapted, bool)
        self._lars = options.name == "lars"
        self.rows = 2 if self._lars else int(options.clip is not None)
        """How many rows of sums are shared; 0: there is no such phase."""

    def publish(self, params: Array, grads: Array, start: int, shared: NDArray[np.float64]) -> None:
        """Writes the sums of the chunk that begins at `start`."""
        if self.rows:
            self._segments.square_sums(grads, start, shared[_GRADIENTS])
        if self._lars:
            self._segments.square_sums(params, start, shared[_WEIGHTS])

    def scale(self, shared: NDArray[np.float64], start: int, stop: int) -> Scale:
        """What to do with the chunk [start, stop), from the sums of all ranks."""
        if not self.rows:
            return UNSCALED
        clip = self._options.clip
        factor = 1.0 if clip is None else clip_factor(self._segments.global_norm(shared[_GRADIENTS]), clip)
        return Scale(factor, self._rates(shared, factor, start, stop) if self._lars else None)

    def _rates(self, shared: NDArray[np.float64], factor: float, start: int, stop: int) -> Rates:
        gradients = self._segments.parameter_norms(shared[_GRADIENTS]) * factor
        weights = self._segments.parameter_norms(shared[_WEIGHTS])
        factors = trust_factors(gradients, weights, self._options.trust, self._options.weight_decay or 0.0)
        factors[~self._adapted] = 1.0
        of_parameter = factors.tolist()
        return [(low, high, of_parameter[index]) for low, high, index in self._segments.ranges(start, stop)]


def clip_factor(norm: float, clip: float) -> float:
    """The factor that brings gradients of this global norm down to `clip`; 1 if they are below."""
    factor = clip / (norm + 1e-6)
    return 1.0 if factor > 1.0 else factor


def trust_factors(gradients: Sums, weights: Sums, trust: float, decay: float) -> Sums:
    """LARS' factor for each parameter, from the norms of its gradients and weights."""
    known = (gradients > 0) & (weights > 0)
    return np.divide(trust * weights, gradients + decay * weights, out=np.ones_like(weights), where=known)
