"""Stochastic gradient descent, plain, with momentum, and Nesterov's: `sgd`, `momentum`, `nesterov`.

With g = scale * gradient + weight_decay * w, as torch.optim.SGD:

    plain       w -= lr * g
    momentum    v = momentum * v + g;  w -= lr * v
    nesterov    v = momentum * v + g;  w -= lr * (g + momentum * v)

    Sgd(OptimizerOptions("momentum", lr=0.1)).update(params, grads, [v], lr=0.1, step=1)
"""

from collections.abc import Sequence
from typing import final

import numpy as np

from unisono.optim.base import Array, Optimizer, Scale, constant, pieces
from unisono.optim.options import OptimizerOptions


@final
class Sgd(Optimizer):
    """Keeps one vector, the velocity, if there is a momentum."""

    def __init__(self, options: OptimizerOptions) -> None:
        super().__init__(options)
        self._momentum = constant(options.momentum or 0.0)
        self._decay = options.weight_decay or 0.0
        self._nesterov = options.name == "nesterov"
        self.state_names = ("momentum",) if options.momentum else ()

    def _update(self, params: Array, grads: Array, state: Sequence[Array], lr: float, step: int, scale: Scale) -> None:
        rate = np.float32(lr)
        for piece in pieces(len(params)):
            w = params[piece]
            g = self._scratch.gradient(w, grads[piece], scale.gradients, self._decay)
            change = self._scratch.change(len(w))
            if self.state_names:
                g = self._accelerate(g, state[0][piece], change)
            np.multiply(g, rate, out=change)
            np.subtract(w, change, out=w)

    def _accelerate(self, g: Array, v: Array, change: Array) -> Array:
        """The direction to go: `v`, or, one look ahead of it, g + momentum * v."""
        np.multiply(v, self._momentum, out=v)
        np.add(v, g, out=v)
        if not self._nesterov:
            return v
        np.multiply(v, self._momentum, out=change)
        return np.add(change, g, out=change)
