"""What clipping and LARS need to know of the whole vector before a chunk of it can be updated.

The one idea: two halves with a barrier (*norms ready*) between. Before it every rank publishes the sums of squares of
its own chunk, after it every rank computes the same `Scale` from all of them.

    scaling = Scaling(options, segments, adapted)               # one-dimensional parameters are not adapted
    if scaling.rows:                                            # shared: float64, (rows, segments.count)
        scaling.publish(params, grads, start, shared); barrier(); scale = scaling.scale(shared, start, stop)

Clipping is torch.nn.utils.clip_grad_norm_'s: all gradients times min(1, clip / (norm + 1e-6)). A norm that is not a
number makes all gradients so, as there: the loss will tell.
"""

from collections.abc import Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from unisono.optim.base import UNSCALED, Rates, Scale
from unisono.optim.norms import Segments, Sums
from unisono.optim.options import OptimizerOptions
from unisono.optim.pieces import Array

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
        """What to do with the chunk [start, stop), from everybody's sums."""
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
