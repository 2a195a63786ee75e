"""Synchronised batch norm: the statistics of all shards of a batch, forward and backward, on CPUs.

The one idea: a shard leaves its count, means and sums of squared deviations at a meeting, and all go on with those of
the whole batch, combined along the canonical tree over shards; backward does the same with the two sums that connect
the gradients. So shards have the result of one big batch, and its bits do not depend on who computed which.

    names = synchronise(module, meetings)  # every BatchNorm1d, 2d, 3d in it, in place; see `concurrent_shards.py`

Statistics are combined in float64, the rest is torch's own kernel with the statistics given. Running statistics come
out equal in every shard. In evaluation, or frozen by .eval(), a layer is torch's. Shards of one sample will do; a batch
of one value a channel is normalised to zero and leaves the running variance.

Limits: what a subclass of torch's batch norm computes in a forward of its own is replaced; 16-bit inputs are normalised
in float32; no second derivatives.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from unisono.arena.reduction_tree import combine
from unisono.models.base import Array

T = TypeVar("T")


class StatisticsExchange(Protocol):
    """Where the shards of a batch meet."""

    def combine(self, label: int, value: Array, finish: Callable[[Sequence[Array]], T], /) -> T:
        """finish(the values of all shards of the batch), the same on each. See `of_gradients`."""
        ...

    def note(self, seconds: float, /) -> None:
        """So long took a layer, beside its meeting: what all this costs is told at the end of a run."""
        ...


@final
@dataclass(frozen=True)
class _Moments:
    """Of all values of a batch, by channel (C,)."""

    count: float
    eps: float
    """What is added to the variance."""
    mean: Tensor
    var: Tensor
    unbiased: Tensor
    """Of a single value: not a number."""


def layers(module: nn.Module) -> dict[str, _BatchNorm]:
    """The batch norms in `module`, each once, by name."""
    return {name: part for name, part in module.named_modules() if isinstance(part, _BatchNorm)}


def row_width(module: nn.Module) -> int:
    """How many numbers a shard leaves at a meeting, at most; 0: there is no batch norm."""
    return max((1 + 2 * layer.num_features for layer in layers(module).values()), default=0)


def of_gradients(label: int) -> bool:
    """Whether the values of a meeting are sums of gradients, which must be those of one loss; else of samples."""
    return label % 2 == 1


def synchronise(module: nn.Module, meetings: StatisticsExchange) -> set[str]:
    """From now on the batch norms in `module` meet. The names of their buffers, which come out equal in every shard."""
    found = layers(module)
    for number, layer in enumerate(found.values()):
        # On the object: whoever else holds the layer, a list of the user's say, has the synchronised one.
        layer.forward = partial(_forward, layer, layer.forward, number, meetings)  # type: ignore[method-assign]
    return {f"{prefix}.{name}".lstrip(".") for prefix, layer in found.items() for name, _ in layer.named_buffers()}


def _forward(
    layer: _BatchNorm, plain: Callable[[Tensor], Tensor], number: int, meetings: StatisticsExchange, input: Tensor
) -> Tensor:
    if not layer.training:
        return plain(input)
    begun = time.perf_counter()
    layer._check_input_dim(input)  # type: ignore[no-untyped-call]
    x = input.float()  # (b, C, ...)
    row = _left(x.detach())
    meetings.note(time.perf_counter() - begun)
    moments = meetings.combine(2 * number, row, partial(_moments, layer.eps))
    begun = time.perf_counter()
    _count(layer, moments)
    weight = torch.ones_like(moments.mean) if layer.weight is None else layer.weight
    bias = torch.zeros_like(moments.mean) if layer.bias is None else layer.bias
    y: Tensor = _Normalise.apply(x, weight, bias, moments, meetings, 2 * number + 1)  # type: ignore[no-untyped-call]
    y = y.to(input.dtype)
    meetings.note(time.perf_counter() - begun)
    return y


def _left(x: Tensor) -> Array:
    """(1 + 2C,) float64: what a shard leaves."""
    count = x.numel() // x.shape[1]
    mean, var = torch.batch_norm_update_stats(x, None, None, 0.0)  # (C,), (C,): five times faster than var_mean
    return np.concatenate([[count], mean.numpy(), var.numpy().astype(np.float64) * count])


def _moments(eps: float, rows: Sequence[Array]) -> _Moments:
    table = np.array(rows)  # (shards, 1 + 2C)
    channels = table.shape[1] // 2
    counts, means, squares = table[:, :1], table[:, 1 : 1 + channels], table[:, 1 + channels :]
    with np.errstate(all="ignore"):  # NaNs are found in the loss
        total = _sum(counts)
        mean = _sum(counts * means) / total
        squares = _sum(squares + counts * (means - mean) ** 2)
        found = mean, squares / total, squares / (total - 1)
        narrow = [torch.from_numpy(array.astype(np.float32)) for array in found]
    return _Moments(float(total[0]), eps, *narrow)


def _sum(rows: Array) -> Array:
    """(shards, n) -> (n,) along the canonical tree."""
    out = np.empty(rows.shape[1])
    combine(list(rows), out, np.add)
    return out


def _count(layer: _BatchNorm, moments: _Moments) -> None:
    """Running statistics, as torch keeps them."""
    if layer.running_mean is None or layer.running_var is None:
        return
    rate = layer.momentum
    if layer.num_batches_tracked is not None:
        layer.num_batches_tracked.add_(1)
        rate = 1.0 / float(layer.num_batches_tracked) if rate is None else rate
    layer.running_mean.lerp_(moments.mean, rate or 0.0)
    if moments.count > 1:
        layer.running_var.lerp_(moments.unbiased, rate or 0.0)


class _Normalise(torch.autograd.Function):
    """y = (x - mean) / sqrt(var + eps) * weight + bias, where mean and var depend on the x of every shard."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, moments: _Moments, meetings: StatisticsExchange, label: int
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.moments, ctx.meetings, ctx.label = moments, meetings, label
        return _affine(x, weight, bias, moments)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        begun = time.perf_counter()
        x, weight = ctx.saved_tensors
        moments, meetings = ctx.moments, ctx.meetings
        dx, dweight, dbias = torch.ops.aten.native_batch_norm_backward(
            dy.contiguous(), x, weight, moments.mean, moments.var, None, None, False, moments.eps, [True, True, True]
        )  # as if mean and var were constants
        if not ctx.needs_input_grad[0]:
            return None, dweight, dbias, None, None, None
        row = np.concatenate([dweight.numpy(), dbias.numpy()]).astype(np.float64)  # (2C,)
        meetings.note(time.perf_counter() - begun)
        through = meetings.combine(ctx.label, row, partial(_through, moments))
        begun = time.perf_counter()
        slopes, shifts = weight * through  # (C,), (C,)
        dx.add_(_affine(x, slopes, shifts, moments))
        meetings.note(time.perf_counter() - begun)
        return dx, dweight, dbias, None, None, None


def _through(moments: _Moments, rows: Sequence[Array]) -> Tensor:
    """(2, C): what a shard's gradient owes to all shards, through the variance and through the mean."""
    with np.errstate(all="ignore"):
        sums = _sum(np.array(rows)).reshape(2, -1) / -moments.count
        scales = 1 / np.sqrt(moments.var.numpy().astype(np.float64) + moments.eps)  # (C,)
        return torch.from_numpy((sums * scales).astype(np.float32))


def _affine(x: Tensor, weight: Tensor, bias: Tensor, moments: _Moments) -> Tensor:
    return torch.native_batch_norm(x, weight, bias, moments.mean, moments.var, False, 0.0, moments.eps)[0]
