"""Linear: y = x W + b.

The one idea: per shard the gradient of W is itself one product, written straight into the shard's row of the flat
gradient, so nothing is copied or added afterwards. W is (inputs, outputs), not torch's transpose of it: the forward
product is up to 1.8 times faster that way, and what it costs in backward the first, largest layer does not pay.

    Linear(784, 128, first=True).open(room).forward(x)

Starting values are uniform, W in +-gain/sqrt(inputs), b in +-1/sqrt(inputs); gain 1 is torch's default.
Limits: with one sample a shard the products are NumPy's slower vector kernels.
"""

from math import sqrt
from typing import final

import numpy as np
from numpy import add, matmul

from unisono.models.base import Array, Layout
from unisono.models.layer import Layer, Pass, Room


@final
class Linear(Layer):
    """`first`: nobody asks for the gradient of its input, so it is not computed."""

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
