"""FiniteCheck: whether everything that was learnt is finite, asked before it is written down or told as a result.

The one idea: a step's loss is computed before its update, so the loss says nothing of the last update. One pass over
the parameters and buffers does: at the end of an epoch on every rank, and for a snapshot on the process that writes it.
It is never done in a step.

    check = FiniteCheck(model, params, buffers); check(params, buffers, "after epoch 3", hint="lower --lr")

Buffers that are not finite at the start may stay so, and infinities count in running statistics only: masks of -inf are
no divergence. Integers are finite.

Limits: of the optimizer's state only NaN counts, for an infinite second moment stops a parameter and spoils nothing.
"""

from collections.abc import Callable, Iterable
from typing import Protocol, final

import numpy as np

from unisono.errors import UnisonoError
from unisono.models.base import Array, Layout
from unisono.recipe import Recipe

RUNNING = ("running_mean", "running_var")
"""Buffers that follow what the network computes."""
_PIECE = 1 << 16
"""Elements looked at in one call: what it makes of them stays in the cache."""


@final
class NotFiniteTensor(UnisonoError):
    """A tensor that was learnt holds NaN or infinities: training has diverged, and nothing of it is kept."""


class Named(Protocol):
    """What has tensors in two flat vectors: a `Model`, or the module of a user's own loop."""

    @property
    def layout(self) -> Layout: ...

    @property
    def buffers_layout(self) -> Layout: ...

    def named(self, params: Array, buffers: Array) -> tuple[dict[str, Array], dict[str, Array]]: ...


@final
class FiniteCheck:
    """Of a model, whose `params` and `buffers` hold what a run starts from."""

    def __init__(self, model: Named, params: Array, buffers: Array) -> None:
        self._model = model
        _, states = self._named(params, buffers)
        self._exempt = {name for name, array in states.items() if _count(array)}

    def __call__(self, params: Array, buffers: Array, when: str, *, state: Iterable[Array] = (), hint: str) -> None:
        """A `NotFiniteTensor` that names the first tensor with NaN or infinities, and `when` it was seen. state: the
        optimizer's vectors."""
        trained, states = self._named(params, buffers)
        checked = {name: array for name, array in states.items() if name not in self._exempt}
        for name, array in (trained | checked).items():
            masks = name in checked and name.rpartition(".")[2] not in RUNNING
            if found := _count(array, np.isnan if masks else _not_finite):
                raise NotFiniteTensor(f"{found} of {array.size} values of {name} are not finite {when}", hint=hint)
        for vector in state:
            if any(np.isnan(piece).any() for piece in _pieces(vector)):
                raise NotFiniteTensor(f"the optimizer's state holds NaN {when}", hint=hint)

    def _named(self, params: Array, buffers: Array) -> tuple[dict[str, Array], dict[str, Array]]:
        """Without the padding."""
        model = self._model
        return model.named(params[: model.layout.length], buffers[: model.buffers_layout.length])


def divergence_hint(recipe: Recipe) -> str:
    """What to do about a run that diverges."""
    return f"lower --lr ({recipe.learning.lr:g}), or use --clip 1 or --warmup-epochs 1"


def _not_finite(piece: Array) -> Array:
    found: Array = ~np.isfinite(piece)
    return found


def _count(array: Array, counts: Callable[[Array], Array] = _not_finite) -> int:
    """How many values are not finite, or of another kind that `counts`."""
    if array.dtype.kind != "f":
        return 0
    return sum(int(np.count_nonzero(counts(piece))) for piece in _pieces(array))


def _pieces(array: Array) -> Iterable[Array]:
    flat = array.reshape(-1)
    return (flat[start : start + _PIECE] for start in range(0, flat.size, _PIECE))
