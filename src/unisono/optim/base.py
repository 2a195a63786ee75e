"""Optimizer: how a chunk of the parameters changes, given the same chunk of the gradients.

The one idea: an optimizer is element-wise on flat vectors and holds no state of its own. State vectors are the caller's
(they lie in shared memory, and in snapshots), so whoever owns a chunk can update it; what an element needs to know of
the others (clipping, LARS) arrives as a `Scale`. So the bits do not depend on how the vector is cut.

    state = tuple(np.zeros_like(params) for _ in optimizer.state_names)
    optimizer.update(params, grads, state, lr=0.1, step=1)

Limits: float32, 1-d, contiguous. One object is for one thread: it has scratch. Every 64 steps state below 1e-36 is set
to 0, because denormal numbers are slow (`Scratch.flush`). A run that diverges overflows in here, and NumPy warns: a
trainer that looks at its losses can silence that around its loop (`np.errstate`).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

from unisono.optim.options import OptimizerOptions
from unisono.optim.pieces import Array, Scratch

Rates: TypeAlias = Sequence[tuple[int, int, float]]
"""(start, stop, factor): the learning rate of the elements [start, stop) of a chunk is multiplied by `factor`."""


@final
@dataclass(frozen=True)
class Scale:
    """What norms decide about a step; `gradient_scale.py` computes it."""

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
