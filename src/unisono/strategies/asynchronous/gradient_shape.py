"""GradientShape: what a worker does to its gradient before it sends it: clipping, then momentum.

    shaping = GradientShape(terms, velocity); shaping.shape(gradient)

The one idea: both belong to the worker. It has the whole gradient, so its norm needs no exchange; and momentum at the
masters would mix directions of many workers and make stale gradients count again and again.
"""

from typing import final

import numpy as np

from unisono.optim.gradient_scale import clip_factor
from unisono.strategies.asynchronous.options import AsyncOptions


@final
class GradientShape:
    """velocity: float32, as long as the gradient; None without momentum."""

    def __init__(self, terms: AsyncOptions, velocity: np.ndarray | None) -> None:
        self._clip, self._momentum, self._nesterov = terms.clip, np.float32(terms.momentum), terms.nesterov
        self._velocity = velocity
        self.clips = 0
        """How many gradients were too long."""

    def start(self) -> None:
        """With every greeting the velocity starts anew, so that nothing of it has to be in a snapshot."""
        if self._velocity is not None:
            self._velocity[...] = 0.0

    def shape(self, gradient: np.ndarray) -> None:
        """In place."""
        velocity = self._velocity
        if self._clip:
            factor = clip_factor(float(np.sqrt(np.dot(gradient, gradient))), self._clip)
            if factor != 1.0:
                self.clips += 1
                np.multiply(gradient, np.float32(factor), out=gradient)
        if velocity is None:
            return
        np.multiply(velocity, self._momentum, out=velocity)
        np.add(velocity, gradient, out=velocity)
        if self._nesterov:
            gradient += self._momentum * velocity
        else:
            gradient[...] = velocity
