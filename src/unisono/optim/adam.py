"""Adam and AdamW: steps in units of each element's own recent gradients.

The one idea here is what is kept: decayed *sums* instead of averages, which differ from torch.optim.Adam's by constant
factors and save two of twelve passes. With g the scaled gradient, to which `adam` adds weight_decay * w:

    m = beta1 * m + g                              torch's exp_avg    = (1 - beta1) * m
    v = beta2 * v + g * g                          torch's exp_avg_sq = (1 - beta2) * v
    w -= lr * mean / (sqrt(variance) + eps)        mean     = m * (1 - beta1) / (1 - beta1**step)
                                                   variance = v * (1 - beta2) / (1 - beta2**step)

`adamw` does w *= 1 - lr * weight_decay first instead.

    Adam(OptimizerOptions("adamw", lr=0.001)).update(params, grads, [m, v], lr=0.001, step=1)

Limits: gradients beyond 1e17 may overflow in v, those below 1e-18 vanish in it; torch's bounds are 1e19 and 1e-22.
"""

from collections.abc import Sequence
from math import sqrt
from typing import final

import numpy as np

from unisono.optim.base import Array, Optimizer, Scale, constant, pieces
from unisono.optim.options import OptimizerOptions


@final
class Adam(Optimizer):
    """Keeps the decayed sums of the gradients and of their squares."""

    state_names = ("gradient_sum", "square_sum")
    counts = True

    def __init__(self, options: OptimizerOptions) -> None:
        super().__init__(options)
        weight_decay = options.weight_decay or 0.0
        decoupled = options.name == "adamw"
        self._penalty = 0.0 if decoupled else weight_decay
        self._shrinkage = weight_decay if decoupled else 0.0
        self._beta1, self._beta2 = (constant(beta) for beta in options.betas)

    def _update(self, params: Array, grads: Array, state: Sequence[Array], lr: float, step: int, scale: Scale) -> None:
        rate, eps = self._rate_and_eps(lr, step)
        kept = np.float32(1 - lr * self._shrinkage)
        for piece in pieces(len(params)):
            w, m, v = params[piece], state[0][piece], state[1][piece]
            g = self._scratch.gradient(w, grads[piece], scale.gradients, self._penalty)
            change = self._scratch.change(len(w))
            np.multiply(m, self._beta1, out=m)
            np.add(m, g, out=m)
            np.multiply(v, self._beta2, out=v)
            np.multiply(g, g, out=change)
            np.add(v, change, out=v)
            np.sqrt(v, out=change)
            np.add(change, eps, out=change)
            np.divide(m, change, out=change)
            np.multiply(change, rate, out=change)
            if self._shrinkage:
                np.multiply(w, kept, out=w)
            np.subtract(w, change, out=w)

    def _rate_and_eps(self, lr: float, step: int) -> tuple[np.float32, np.float32]:
        """Both constants of w -= rate * m / (sqrt(v) + eps): all factors of the formula, put before the fraction."""
        beta1, beta2 = self.options.betas
        deviation = sqrt((1 - beta2) / (1 - beta2**step))  # sqrt(variance) / sqrt(v)
        return np.float32(lr * (1 - beta1) / (1 - beta1**step) / deviation), np.float32(self.options.eps / deviation)
