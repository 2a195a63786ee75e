"""Optimizers and learning rates for one flat float32 vector that several ranks update chunk by chunk.

`make` gives the optimizer of a name; imported where it is used, so that naming one does not load NumPy.

    optimizer = make(OptimizerOptions("adam", lr=0.001))
    optimizer.update(params, grads, state, lr=0.001, step=1)

`gradient_norms.py` computes what clipping and LARS need before the update, `learning_rate.py` the learning rate.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from unisono.optim.options import OPTIMIZERS, OptimizerOptions

if TYPE_CHECKING:
    from unisono.optim.base import Optimizer


def make(options: OptimizerOptions) -> "Optimizer":
    """The optimizer that `options` name."""
    module, _, name = OPTIMIZERS[options.name].partition(":")
    made: Optimizer = getattr(import_module(module), name)(options)
    return made
