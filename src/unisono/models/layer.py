"""Layer and Pass: what a network is made of, and one layer at work on one shape.

The one idea: a `Layer` is sizes and names, a few words; a `Pass` is that layer opened for calls of k shards of b
samples, with all its memory allocated once. Forward and backward then allocate nothing and pay Python once for all
shards: each line is one NumPy call with `out=`.

    a_pass = Linear(784, 128).open(room); a_pass.bind_grads(grads); y = a_pass.forward(x); dx = a_pass.backward(dy)

Rules that keep the bits of a shard independent of its neighbours:
- products are `matmul` on stacks: one GEMM per shard inside, never one over (k * b) rows;
- sums are products with ones, or run along the last, contiguous axis: they see one shard only;
- each shard of a work array is contiguous and begins on a 64-byte border, so that it meets the same kernels.
They are held bit by bit in float32, the type of training. Kernels may look at the alignment of their input (MKL's small
products, OpenBLAS's dot for SSE3): that of a shard is the same in every call.

Who may write where: `forward` never writes into its input; `backward` may overwrite `dy`, which nobody reads again.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from unisono import aligned
from unisono.models.base import Array, Layout

NOTHING = Layout({})


@final
@dataclass(frozen=True)
class Room:
    """What a layer is given to work in."""

    shape: tuple[int, int, int]
    """Of its input: (k, b, features)."""

    params: Array
    """(length of its layout,): its stretch of the parameters."""

    buffers: Array
    """(length of its buffers,): its stretch of the committed float state."""

    new_buffers: Array
    """(k, length of its buffers): where training leaves what becomes of them."""

    noise: list[np.random.Generator]
    """One generator a shard, put here before each forward of a network that draws."""

    def empty(self, width: int) -> Array:
        """Memory for (k, b, width), each of the k shards on a border of its own."""
        return aligned.stack(self.shape[0], (self.shape[1], width), self.params.dtype)

    def constant(self, value: float) -> Array:
        """A number as an array of no dimension, which ufuncs take faster than Python's."""
        return np.array(value, self.params.dtype)

    def rows(self, value: float) -> Array:
        """(1, b) filled with `value`: times (k, b, width) it sums each shard over its batch."""
        row = aligned.empty((1, self.shape[1]), self.params.dtype)
        row[...] = value
        return row


class Pass(ABC):
    """A layer opened for one shape."""

    @abstractmethod
    def forward(self, x: Array) -> Array:
        """The output, in memory of its own; valid until the next call."""

    @abstractmethod
    def backward(self, dy: Array) -> Array:
        """The gradient for the input (of width 0 where nobody needs it); those for parameters go where `bind_grads`
        said."""

    def infer(self, x: Array) -> Array:
        """Forward in inference mode."""
        return self.forward(x)

    def bind_grads(self, grads: Array) -> None:  # noqa: B027 - most layers have no parameters
        """Where gradients go from now on: (k, length of the layer's layout), rows apart from each other."""


class Layer(ABC):
    """A layer's sizes and names."""

    layout: Layout = NOTHING
    buffers_layout: Layout = NOTHING
    draws = False
    """Whether training needs random numbers."""

    @abstractmethod
    def open(self, room: Room) -> Pass:
        """The layer at work."""

    def width(self, width: int) -> int:
        """Features of the output for an input of `width` features; the same unless the layer says otherwise."""
        return width

    def init(self, params: Array, buffers: Array, rng: np.random.Generator) -> None:  # noqa: B027 - as above
        """Starting values for its stretches of both vectors."""
