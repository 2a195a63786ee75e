"""Model: what the trainer, the arena and the snapshots know of a network. Numbers lie in flat vectors, shards in rows.

The one idea is the **flat buffer**: all parameters of a model are one contiguous vector, all gradients another, and
`Layout` says which stretch is which. Whoever sums, updates, sends or saves sees one array; the model sees views of it.

    model = build("mlp:128,64", features=784, outputs=10)
    params, buffers = np.empty(model.layout.length, np.float32), np.empty(model.buffers_layout.length, np.float32)
    model.init(params, buffers, np.random.default_rng(0)); model.bind(params, buffers)
    grads = np.empty((shards, model.layout.length), np.float32)
    sums = model.loss_and_grad(x, y, grads, scale=1 / samples_of_the_global_batch)

Every array has a leading shard axis: x is (k, b, features), k shards of b samples that this rank computes in one call.
Nothing mixes shards, and the bits of one do not depend on which others are computed in the same call. A model that must
mix them (`exchange_width`) is given an `Exchange`, and all shards of a rank at once.

Limits: shards of one call have equal sizes (call again for a smaller one at a ragged end), and at least one sample.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import TypeAlias, final

import numpy as np

from unisono.errors import UserError

Array: TypeAlias = np.ndarray
Shape: TypeAlias = tuple[int, ...]
Noise: TypeAlias = Callable[[int], np.random.Generator]


@final
@dataclass(frozen=True)
class Layout:
    """Names and shapes of arrays that lie one after the other in a flat vector, without gaps, in model order."""

    shapes: Mapping[str, Shape]

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(self.shapes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Elements of each array."""
        return tuple(prod(shape) for shape in self.shapes.values())

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Where each array starts, in elements."""
        return tuple(accumulate(self.sizes, initial=0))[:-1]

    @cached_property
    def length(self) -> int:
        """Elements of all arrays together; the vector may be longer (padding belongs to nobody)."""
        return sum(self.sizes)

    def views(self, flat: Array) -> dict[str, Array]:
        """The arrays inside `flat`, by name: (length,) gives arrays of their shapes, (k, length) gives (k, *shape)."""
        rows = flat.shape[:-1]
        parts = zip(self.shapes.items(), self.offsets, self.sizes, strict=True)
        return {name: flat[..., at : at + size].reshape((*rows, *shape)) for (name, shape), at, size in parts}


@final
@dataclass(frozen=True)
class ShardSums:
    """What a call found, one row a shard. The arrays are overwritten by the model's next call: read or copy them."""

    loss_sum: Array
    """(k,) float64: the losses of the shard's samples, added."""

    correct: Array
    """(k,) float64: samples whose largest output is the label's (of a row of labels: the share); 0 for regression."""

    new_buffers: Array
    """(k, buffers length): the float state as this shard leaves it, from the committed one; (k, 0) in evaluation."""

    used: Array | None = None
    """(k, parameters) bool: which ones the shard's loss depends on, in the order of `layout`; None: all of them. The
    gradient of one that no shard of a step used is not zero but missing: optimizers leave it as it is."""


@final
@dataclass(frozen=True)
class Part:
    """The arguments of `loss_and_grad` for some shards of a batch: those of one size."""

    x: Array
    y: Array
    grads: Array
    noise: Noise | None = None


class Exchange(ABC):
    """How the shards of a batch tell each other numbers in the middle of a step, whichever ranks compute them."""

    @abstractmethod
    def rows(self, label: int, values: Sequence[Array]) -> Array:
        """values: a row (n,) float64 for each of this rank's shards -> (shards of the batch, n), in their order.

        Every rank that has shards calls it equally often and with the same labels; otherwise it raises
        `unequal_exchanges()`. The next exchange may overwrite the result.
        """


def unequal_exchanges() -> UserError:
    """The error of shards that do not exchange the same."""
    return UserError(
        "the shards of a batch do not pass the same batch norms in the same order, so they cannot be synchronised",
        hint="leave it out (--sync-batchnorm, or sync_batchnorm=True), or let every forward take the same way whatever "
        "its samples are",
    )


class Model(ABC):
    """A network with its loss. `bind` it once to the vectors that hold its numbers, then call it as often as needed."""

    layout: Layout
    """The parameters."""

    buffers_layout: Layout
    """Float state that is not trained, such as batch norm's running mean and variance; committed with the step."""

    unaveraged: int = 0
    """How many elements at the end of the buffers are bit patterns (integers as pairs of float32 words, constants):
    the next ones are those of shard 0, where the elements before them are averaged over shards."""

    may_skip_params: bool = False
    """Whether `ShardSums.used` may be something else than None."""

    fixed: int = 0
    """How many of the taken ones, at the very end, never change after `init`: nobody needs to move them."""

    exchange_width: int = 0
    """How many numbers a shard tells the others at a time, at most, in the middle of a step; 0: shards are independent.
    Otherwise all shards of a batch are computed at once, by `loss_and_grad_together`."""

    classifies: bool
    """True: labels are whole numbers (k, b) or (k, b, T). False: targets are floats (k, b, outputs)."""

    state_names: Mapping[str, str] | None = None
    """Names in a torch state dict -> names here, tied ones twice; None: `torch_state` in `nets.py` translates."""

    @abstractmethod
    def init(self, params: Array, buffers: Array, rng: np.random.Generator) -> None:
        """Writes the starting values; they depend on `rng` alone."""

    @abstractmethod
    def bind(self, params: Array, buffers: Array) -> None:
        """From now on reads parameters and buffers in these vectors. They stay where they are; their values change."""

    @abstractmethod
    def loss_and_grad(self, x: Array, y: Array, grads: Array, scale: float, noise: Noise | None = None) -> ShardSums:
        """Row j of `grads` (k, length or more) = d(scale * sum of the losses of shard j) / d params, all of it written.

        With scale = 1 / (samples of the global batch) the sum over all shards is the gradient of the global mean.
        `noise(j)` gives the random generator of the j-th shard of this call; asked for once a call, by networks with
        dropout only. Hand over the same `grads` object every time where possible: its views are kept.
        """

    def loss_and_grad_together(
        self, parts: Sequence[Part], scale: float, exchange: Exchange | None = None
    ) -> list[ShardSums]:
        """loss_and_grad for all shards of this rank, in their order, no two parts of one shape.

        exchange: with the shards of other ranks; None: there are no others.
        """
        return [self.loss_and_grad(part.x, part.y, part.grads, scale, part.noise) for part in parts]

    @property
    def exchange_s(self) -> float:
        """Seconds that `loss_and_grad_together` has spent so far on exchanges, and on what they are for."""
        return 0.0

    @abstractmethod
    def evaluate(self, x: Array, y: Array) -> ShardSums:
        """The same sums in inference mode: running statistics, no dropout; nothing changes."""

    def check_reproducible(self) -> None:  # noqa: B027  (most networks can always)
        """Asked before what was computed since the last time is kept: a `UserError` if it would not come out the same
        again."""

    def named(self, params: Array, buffers: Array) -> tuple[dict[str, Array], dict[str, Array]]:
        """(parameters, buffers) by name, in their own shapes and types: what weights files hold. Views or copies."""
        return self.layout.views(params), self.buffers_layout.views(buffers)
