"""Activations of the NumPy engine: ReLU, Tanh, Sigmoid, GELU; and the table of all.

The one idea: the derivative of the first three is written in terms of the output y, so only y is kept.

    ACTIVATIONS["tanh"]().open(room).forward(x)

GELU is the exact one, x P(X < x) for a standard normal X, as torch's GELU(approximate="none"). NumPy has no erf, and
none is needed. With Q(z) = P(X > z) for z = |x|,

    gelu(x) = max(x, 0) - z Q(z)        Q(z) = exp(-z^2/2) t p(t)        t = 1 / (1 + 0.31 z)

where p is a polynomial of degree 7, fitted to the largest error. It has no branch and no cancellation in the tails, and
the derivative needs the same exponential.

Limits: sigmoid is computed by tanh, which is faster and cannot overflow; far from 0 its absolute error is 6e-8 (in
float32), its relative error is larger. GELU is accurate to 2e-8 for value and slope, below float32's rounding; float64
is no better.
"""

from math import pi, sqrt
from typing import final

from numpy import absolute, add, copysign, divide, exp, greater, maximum, multiply, subtract, tanh

from unisono import aligned
from unisono.models.base import Array
from unisono.models.layers import Layer, Pass, Room

STRETCH = 0.31
POLYNOMIAL = (
    0.03169414168,
    -0.1242403832,
    0.1254675667,
    0.01136231487,
    0.09728219981,
    0.1111033237,
    0.1236575309,
    0.1236733252,
)
"""p(t), highest power first."""


@final
class GELU(Layer):
    """x times the normal distribution function at x."""

    def open(self, room: Room) -> Pass:
        return GELUPass(room)


@final
class GELUPass(Pass):
    def __init__(self, room: Room) -> None:
        self.size, self.bell, self.t, self.tail, self.y = (room.empty(room.shape[2]) for _ in range(5))
        self.zero, self.half, self.minus_half, self.one = (room.constant(value) for value in (0.0, 0.5, -0.5, 1.0))
        self.stretch, self.density = room.constant(STRETCH), room.constant(1 / sqrt(2 * pi))
        self.leading, *self.rest = (room.constant(value) for value in POLYNOMIAL)

    def forward(self, x: Array) -> Array:
        self.x = x  # (k, b, h), as all below
        absolute(x, out=self.size)
        multiply(self.size, self.stretch, out=self.t)
        add(self.t, self.one, out=self.t)
        divide(self.one, self.t, out=self.t)
        multiply(x, x, out=self.bell)
        multiply(self.bell, self.minus_half, out=self.bell)
        exp(self.bell, out=self.bell)
        multiply(self.t, self.leading, out=self.tail)
        for coefficient in self.rest:
            add(self.tail, coefficient, out=self.tail)
            multiply(self.tail, self.t, out=self.tail)
        multiply(self.tail, self.bell, out=self.tail)  # Q(|x|)
        maximum(x, self.zero, out=self.y)
        multiply(self.size, self.tail, out=self.t)
        subtract(self.y, self.t, out=self.y)
        return self.y

    def backward(self, dy: Array) -> Array:
        # The slope is P(X < x) + x times the density at x.
        multiply(self.bell, self.density, out=self.bell)
        multiply(self.bell, self.x, out=self.bell)
        subtract(self.half, self.tail, out=self.tail)
        copysign(self.tail, self.x, out=self.tail)
        add(self.tail, self.half, out=self.tail)
        add(self.tail, self.bell, out=self.bell)
        multiply(dy, self.bell, out=dy)
        return dy


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
