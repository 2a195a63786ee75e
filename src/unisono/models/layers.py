"""Layers of NumPy networks: `Layer` and `Pass`, which every layer implements, and `Linear` and `Dropout`.

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

`forward` never writes into its input; `backward` may overwrite `dy`, which is not read again.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import sqrt
from typing import final

import numpy as np
from numpy import add, greater_equal, matmul, multiply

from unisono import aligned
from unisono.models.base import Array, Layout

NOTHING = Layout({})


@final
@dataclass(frozen=True)
class Room:
    """What a layer is given to work in."""

    shape: tuple[int, int, int]
    """The shape of its input: (k, b, features)."""

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
        """The gradient for the input (of width 0 where it is not needed); those for parameters go where `bind_grads`
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


@final
class Linear(Layer):
    """y = x W + b. `first`: the gradient of its input is not needed, so it is not computed.

    Per shard the gradient of W is one product, written straight into the shard's row of the flat gradient, so nothing
    is copied or added afterwards. W is (inputs, outputs), not torch's transpose of it: the forward product is up to 1.8
    times faster that way, and the first, largest layer does not pay the cost in backward.

    Starting values are uniform, W in +-gain/sqrt(inputs), b in +-1/sqrt(inputs); gain 1 is torch's default. With one
    sample a shard the products use NumPy's slower vector kernels.
    """

    def __init__(self, inputs: int, outputs: int, *, first: bool = False, gain: float = 1.0) -> None:
        self.inputs, self.outputs, self.first, self.gain = inputs, outputs, first, gain
        self.layout = Layout({"W": (inputs, outputs), "b": (outputs,)})

    def width(self, width: int) -> int:
        return self.outputs

    def init(self, params: Array, buffers: Array, rng: np.random.Generator) -> None:
        w, b = self.layout.views(params).values()
        bound = 1 / sqrt(self.inputs)
        w[...] = self.gain * bound * (2 * rng.random(w.shape) - 1)
        b[...] = bound * (2 * rng.random(b.shape) - 1)

    def open(self, room: Room) -> Pass:
        return LinearPass(self, room)


@final
class LinearPass(Pass):
    """m inputs, n outputs."""

    def __init__(self, layer: Linear, room: Room) -> None:
        self._layout = layer.layout
        self.w, self.b = layer.layout.views(room.params).values()  # (m, n), (n,)
        self.w_t = self.w.T  # (n, m)
        self.y = room.empty(layer.outputs)
        self.first = layer.first
        self.dx = room.empty(0 if layer.first else layer.inputs)
        self.ones = room.rows(1.0)  # (1, b)

    def bind_grads(self, grads: Array) -> None:
        self.dw, db = self._layout.views(grads).values()  # (k, m, n)
        self.db = db[:, np.newaxis, :]  # (k, 1, n)

    def forward(self, x: Array) -> Array:
        self.x = x  # (k, b, m)
        matmul(x, self.w, out=self.y)  # (k, b, m) x (m, n) -> (k, b, n)
        add(self.y, self.b, out=self.y)
        return self.y

    def backward(self, dy: Array) -> Array:
        matmul(self.x.swapaxes(1, 2), dy, out=self.dw)  # (k, m, b) x (k, b, n) -> (k, m, n)
        matmul(self.ones, dy, out=self.db)  # (1, b) x (k, b, n) -> (k, 1, n)
        if not self.first:
            matmul(dy, self.w_t, out=self.dx)  # (k, b, n) x (n, m) -> (k, b, m)
        return self.dx


@final
class Dropout(Layer):
    """Inverted: in training each value is dropped with probability `rate`, the others are scaled by 1 / (1 - rate).

    The random numbers belong to the shard, not to the rank: each shard draws its mask from its own generator
    (`room.noise`), in the order of the layers, so the mask is the same on any rank. 16 raw bits decide over one value:
    five times faster than drawing floats, and NumPy promises these bits for all later versions. 0 <= rate < 1, rounded
    to 1/65536; generators must yield 64 bits at a time (Philox, PCG64; not MT19937).
    """

    draws = True

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def open(self, room: Room) -> Pass:
        return DropoutPass(self.rate, room)


@final
class DropoutPass(Pass):
    def __init__(self, rate: float, room: Room) -> None:
        self.noise = room.noise
        self.y, self.mask = room.empty(room.shape[2]), room.empty(room.shape[2])
        self.kept = np.empty((room.shape[0], room.shape[1] * room.shape[2]), bool)
        dropped = min(round(rate * 2**16), 2**16 - 1)
        self.dropped = np.array(dropped, np.uint16)
        self.boost = room.constant(1 / (1 - dropped / 2**16))

    def forward(self, x: Array) -> Array:
        width = self.kept.shape[1]
        for row, generator in zip(self.kept, self.noise, strict=True):
            bits = generator.bit_generator.random_raw(-(-width // 4)).view(np.uint16)  # (b * h or a few more,)
            greater_equal(bits[:width], self.dropped, out=row)  # (b * h,)
        self.mask[...] = self.kept.reshape(x.shape)  # (k, b, h)
        multiply(self.mask, self.boost, out=self.mask)
        multiply(x, self.mask, out=self.y)
        return self.y

    def backward(self, dy: Array) -> Array:
        multiply(dy, self.mask, out=dy)  # (k, b, h)
        return dy

    def infer(self, x: Array) -> Array:
        return x
