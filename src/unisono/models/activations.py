"""Activations that need nothing but their own output to go back: ReLU, Tanh, Sigmoid; and the table of all.

The one idea: the derivative is written in terms of y, so only y is kept. GELU, which is not like that, is in `gelu.py`.

    ACTIVATIONS["tanh"]().open(room).forward(x)

Limits: sigmoid goes by way of tanh, which is faster and cannot overflow; far out it is exact to 6e-8 absolutely (in
float32), not relatively.
"""

from math import sqrt
from typing import final

from numpy import add, greater, maximum, multiply, subtract, tanh

from unisono import aligned
from unisono.models.base import Array
from unisono.models.gelu import GELU
from unisono.models.layer import Layer, Pass, Room


@final
class ReLU(Layer):
    """max(x, 0)."""

    def open(self, room: Room) -> Pass:
        return ReLUPass(room)


@final
class ReLUPass(Pass):
    def __init__(self, room: Room) -> None:
        self.y, self.slope = room.empty(room.shape[2]), room.empty(room.shape[2])
        self.on = aligned.stack(len(self.y), self.y.shape[1:], bool)
        self.zero = room.constant(0.0)

    def forward(self, x: Array) -> Array:
        maximum(x, self.zero, out=self.y)  # (k, b, h)
        return self.y

    def backward(self, dy: Array) -> Array:
        # Each step without a cast inside a ufunc; masked assignment is ten times slower.
        greater(self.y, self.zero, out=self.on)  # (k, b, h)
        self.slope[...] = self.on
        multiply(dy, self.slope, out=dy)
        return dy


@final
class Tanh(Layer):
    """The hyperbolic tangent."""

    def open(self, room: Room) -> Pass:
        return TanhPass(room)


@final
class TanhPass(Pass):
    def __init__(self, room: Room) -> None:
        self.y, self.slope = room.empty(room.shape[2]), room.empty(room.shape[2])
        self.one = room.constant(1.0)

    def forward(self, x: Array) -> Array:
        tanh(x, out=self.y)  # (k, b, h)
        return self.y

    def backward(self, dy: Array) -> Array:
        multiply(self.y, self.y, out=self.slope)  # (k, b, h)
        subtract(self.one, self.slope, out=self.slope)
        multiply(dy, self.slope, out=dy)
        return dy


@final
class Sigmoid(Layer):
    """1 / (1 + exp(-x)) = (1 + tanh(x / 2)) / 2."""

    def open(self, room: Room) -> Pass:
        return SigmoidPass(room)


@final
class SigmoidPass(Pass):
    def __init__(self, room: Room) -> None:
        self.y, self.slope = room.empty(room.shape[2]), room.empty(room.shape[2])
        self.half = room.constant(0.5)

    def forward(self, x: Array) -> Array:
        multiply(x, self.half, out=self.y)  # (k, b, h)
        tanh(self.y, out=self.y)
        multiply(self.y, self.half, out=self.y)
        add(self.y, self.half, out=self.y)
        return self.y

    def backward(self, dy: Array) -> Array:
        multiply(self.y, self.y, out=self.slope)  # (k, b, h)
        subtract(self.y, self.slope, out=self.slope)  # y (1 - y)
        multiply(dy, self.slope, out=dy)
        return dy


ACTIVATIONS: dict[str, type[Layer]] = {"relu": ReLU, "tanh": Tanh, "sigmoid": Sigmoid, "gelu": GELU}

OWN_ACTIVATIONS = {"mlp": "sigmoid", "bn-mlp": "relu", "cnn": "relu", "wideresnet": "relu", "gpt": "gelu"}
"""Of the networks that have hidden layers: what they have unless told otherwise, in either engine."""

GAINS = {"relu": sqrt(6), "tanh": sqrt(3), "sigmoid": 4.0, "gelu": sqrt(6)}
"""How much wider than torch's default the weights before an activation start, so that signals keep their size: He's for
ReLU and its like, LeCun's for tanh; sigmoid's slope is at most 1/4. Each learns faster on MNIST than with gain 1."""
