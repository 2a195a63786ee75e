"""LARS, layer-wise adaptive rate scaling (You, Gitman and Ginsburg 2017, arXiv 1708.03888): for very large batches.

The one idea: a parameter tensor moves by a fixed fraction (`trust`) of its own norm, whatever the size of its gradient.
With g the gradient after clipping, |.| the norm over one tensor:

    factor = trust * |w| / (|g| + weight_decay * |w|)        1 if |w| or |g| is 0
    v = momentum * v + lr * factor * (g + weight_decay * w)
    w -= v

One-dimensional tensors (biases, batch norm) are not adapted: their factor is 1; weight decay holds for them too. Unlike
in SGD, lr is inside the momentum, as in the paper. The factors come with `Scale.rates`, from `gradient_norms.py`.

    Lars(OptimizerOptions("lars", lr=2.0)).update(params, grads, [v], lr=2.0, step=1, scale=scale)
"""

from collections.abc import Sequence
from typing import final

import numpy as np

from unisono.optim.base import Array, Optimizer, Scale, constant, pieces
from unisono.optim.options import OptimizerOptions


@final
class Lars(Optimizer):
    """Keeps one vector, the velocity."""

    state_names = ("momentum",)

    def __init__(self, options: OptimizerOptions) -> None:
        super().__init__(options)
        self._momentum = constant(options.momentum or 0.0)
        self._decay = options.weight_decay or 0.0

    def _update(self, params: Array, grads: Array, state: Sequence[Array], lr: float, step: int, scale: Scale) -> None:
        rates = scale.rates if scale.rates is not None else [(0, len(params), 1.0)]
        for start, stop, factor in rates:
            rate = np.float32(lr * factor)
            for piece in pieces(stop, start):
                w, v = params[piece], state[0][piece]
                g = self._scratch.gradient(w, grads[piece], scale.gradients, self._decay)
                change = np.multiply(g, rate, out=self._scratch.change(len(w)))
                np.multiply(v, self._momentum, out=v)
                np.add(v, change, out=v)
                np.subtract(w, v, out=w)
