"""Precision: in which type products are computed, and how gradients of 16 bits are kept from vanishing.

The one idea: parameters, sums and updates stay float32; `torch.autocast` computes the forward (and what autograd makes
of it) in 16 bits, and each shard is a call of its own, so bits do not depend on which shards are computed together.

    precision = find("bf16"); z = precision.forward(module, x); gradients = precision.gradients(loss, params, weight)

Gradients of fp16 are multiplied by 2**16, as `torch.amp.GradScaler` does. Where that overflows, the *shard* is derived
again with a smaller factor, a power of two: undoing it is exact, no step is left out, and nobody else needs to know.

Limits: fp16 keeps a shard's graph until its gradients are finite; those that are not finite with the smallest factor
are handed on as they are.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from unisono.errors import UserError
from unisono.models.engines import check_precision

FACTORS = (2.0**16, 2.0**8, 1.0, 2.0**-8)
"""What gradients of fp16 are multiplied by, one after the other until they are finite."""

Gradients = Sequence[Tensor | None]


class Precision(ABC):
    """How one shard is computed."""

    @abstractmethod
    def forward(self, module: nn.Module, x: Tensor) -> Tensor:
        """module(x)."""

    @abstractmethod
    def gradients(self, loss: Tensor, params: Sequence[Tensor], weight: Tensor) -> Gradients:
        """d(weight * loss) / d params, float32; None for those that the loss does not depend on."""


@final
class Full(Precision):
    """fp32: as torch computes."""

    def forward(self, module: nn.Module, x: Tensor) -> Tensor:
        return module(x)  # type: ignore[no-any-return]

    def gradients(self, loss: Tensor, params: Sequence[Tensor], weight: Tensor) -> Gradients:
        return _derived(loss, params, weight)


@final
class Mixed(Precision):
    """bf16 has the range of float32, so one factor, 1, will do; fp16 has not."""

    def __init__(self, dtype: torch.dtype, factors: Sequence[float] = (1.0,)) -> None:
        self._dtype, self._factors = dtype, factors

    def forward(self, module: nn.Module, x: Tensor) -> Tensor:
        try:
            with torch.autocast("cpu", self._dtype):
                return module(x)  # type: ignore[no-any-return]
        except RuntimeError as error:  # not every kernel knows every type
            raise UserError(
                f"{type(module).__name__} cannot be computed in {self._dtype}: {error}", hint="use --precision fp32"
            ) from None

    def gradients(self, loss: Tensor, params: Sequence[Tensor], weight: Tensor) -> Gradients:
        for factor in self._factors:
            last = factor == self._factors[-1]
            found = _derived(loss, params, weight * factor, again=not last)
            if last or all(_finite(gradient) for gradient in found if gradient is not None):
                break
        if factor == 1.0:
            return found
        return [None if gradient is None else gradient * (1.0 / factor) for gradient in found]


def _derived(loss: Tensor, params: Sequence[Tensor], weight: Tensor, *, again: bool = False) -> Gradients:
    """As if `weight` were handed over as the loss's own gradient, for which torch imports sympy: a third of a second,
    and 35 MB that every fork of a rank must map."""
    return torch.autograd.grad(loss * weight, params, retain_graph=again, allow_unused=True)


def _finite(gradient: Tensor) -> bool:
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    return bool(values.isfinite().all())


def find(name: str) -> Precision:
    """The precision of that name; a `UserError` for one that CPUs do not have."""
    check_precision(name)
    if name == "fp32":
        return Full()
    return Mixed(torch.bfloat16) if name == "bf16" else Mixed(torch.float16, FACTORS)
