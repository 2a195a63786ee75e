"""Losses: softmax cross-entropy for classes, mean squared error for numbers. Sums per shard, and the first gradient.

The one idea: one pass over the outputs leaves what the gradient needs (exponentials, differences) and two sums per
shard, loss and correct answers, added in float64 inside the shard.

    a_pass = SoftmaxCrossEntropy().open(shape, dtype); a_pass.forward(z, labels); dz = a_pass.backward(scale)

Limits: labels are trusted to lie in 0 .. classes-1 (the data are checked where they are loaded); a wrong one would be
looked up in a neighbour's row.
"""

from abc import ABC, abstractmethod
from typing import final

import numpy as np
from numpy import add, divide, equal, exp, log, matmul, multiply, subtract

from unisono import aligned
from unisono.models.base import Array


class LossPass(ABC):
    """A loss opened for one shape."""

    sums: Array
    """(k, 2) float64: per shard the losses of its samples added, and the number of correct answers."""

    @abstractmethod
    def forward(self, z: Array, y: Array) -> None:
        """Fills `sums`."""

    @abstractmethod
    def backward(self, scale: float) -> Array:
        """scale * d(sum of losses)/dz after `forward`, once; valid until the next call."""


class Loss(ABC):
    """Which loss a network ends with."""

    classifies: bool

    @abstractmethod
    def open(self, shape: tuple[int, int, int], dtype: np.dtype) -> LossPass:
        """The loss at work on outputs of this shape."""


@final
class SoftmaxCrossEntropy(Loss):
    """-log of the probability that softmax gives to the label."""

    classifies = True

    def open(self, shape: tuple[int, int, int], dtype: np.dtype) -> LossPass:
        return SoftmaxCrossEntropyPass(shape, dtype)


@final
class SoftmaxCrossEntropyPass(LossPass):
    """c classes."""

    def __init__(self, shape: tuple[int, int, int], dtype: np.dtype) -> None:
        k, b, c = shape
        self.e = aligned.stack(k, (b, c), dtype)
        self.flat = aligned.flat_memory(self.e)  # (k * (b * c, and a gap),)
        rows = np.arange(0, b * c, c)
        self.starts = np.arange(0, k * b * c, b * c)[:, np.newaxis] + rows  # (k, b): as if there were no gaps
        self.places = np.arange(k)[:, np.newaxis] * (self.e.strides[0] // self.e.itemsize) + rows  # (k, b): in flat
        self.best, self.place, self.label_place = (np.empty((k, b), np.intp) for _ in range(3))
        self.top, self.label, self.log = (aligned.stack(k, (b,), dtype) for _ in range(3))
        self.tops = self.top[:, :, np.newaxis]  # (k, b, 1)
        self.total = aligned.stack(k, (b, 1), dtype)
        self.totals = self.total[:, :, 0]  # (k, b)
        self.ones = aligned.empty((c, 1), dtype)
        self.ones[...] = 1.0
        self.found = aligned.stack(k, (2, b), np.float64)
        self.losses, self.hits = self.found[:, 0], self.found[:, 1]  # (k, b) each
        self.sums = np.empty((k, 2))
        self.scale = np.zeros((), dtype)
        self.scaled_by = 0.0

    def forward(self, z: Array, y: Array) -> None:
        z.argmax(2, out=self.best)  # (k, b, c) -> (k, b); much faster than a maximum along so short an axis
        equal(self.best, y, out=self.hits)  # (k, b)
        add(self.best, self.starts, out=self.place)  # (k, b): its number among all outputs
        add(y, self.places, out=self.label_place)
        z.take(self.place, out=self.top, mode="clip")  # (k, b)
        subtract(z, self.tops, out=self.e)  # (k, b, c)
        self.flat.take(self.label_place, out=self.label, mode="clip")  # (k, b)
        exp(self.e, out=self.e)  # (k, b, c)
        matmul(self.e, self.ones, out=self.total)  # (k, b, c) x (c, 1) -> (k, b, 1)
        log(self.totals, out=self.log)  # (k, b)
        subtract(self.log, self.label, out=self.losses)  # (k, b) float64
        add.reduce(self.found, 2, out=self.sums)  # (k, 2, b) -> (k, 2)

    def backward(self, scale: float) -> Array:
        if scale != self.scaled_by:  # an array without dimensions, which NumPy takes faster than a number
            self.scale[...] = self.scaled_by = scale
        divide(self.scale, self.total, out=self.total)  # (k, b, 1)
        multiply(self.e, self.total, out=self.e)  # (k, b, c): scale * softmax
        self.flat.take(self.label_place, out=self.label, mode="clip")  # (k, b)
        subtract(self.label, self.scale, out=self.label)
        self.flat[self.label_place] = self.label
        return self.e


@final
class MeanSquaredError(Loss):
    """The mean over the outputs of (output - target)^2."""

    classifies = False

    def open(self, shape: tuple[int, int, int], dtype: np.dtype) -> LossPass:
        return MeanSquaredErrorPass(shape, dtype)


@final
class MeanSquaredErrorPass(LossPass):
    """o outputs. Targets are (k, b, o)."""

    def __init__(self, shape: tuple[int, int, int], dtype: np.dtype) -> None:
        k, b, o = shape
        self.outputs = o
        self.gap = aligned.stack(k, (b, o), dtype)
        self.squares = aligned.stack(k, (b * o,), np.float64)
        self.sums = np.zeros((k, 2))

    def forward(self, z: Array, y: Array) -> None:
        subtract(z, y, out=self.gap)  # (k, b, o)
        flat = self.gap.reshape(self.squares.shape)
        multiply(flat, flat, out=self.squares)  # (k, b * o) float64
        add.reduce(self.squares, 1, out=self.sums[:, 0])  # (k,)
        divide(self.sums, self.outputs, out=self.sums)

    def backward(self, scale: float) -> Array:
        multiply(self.gap, 2 * scale / self.outputs, out=self.gap)  # (k, b, o)
        return self.gap
