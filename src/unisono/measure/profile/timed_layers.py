"""Layers of the NumPy engine with a watch on each: how long every forward and backward took, one by one.

The one idea: a watched layer *is* a layer that wraps another, so a chain of watched layers is a chain, and computes the
same bits in the same memory. Layers come one after the other, so one reading of the clock at the end of each call will
do: where one ends the next begins. What that costs, about a microsecond a call, can be taken off (`price_s`).

    stamps = Stamps(); watched = stamps.watch(chain); watched.loss_and_grad(...); stamps.spans()

Limits: inference is not watched. What it takes to get from one layer to the next counts for the next.
"""

from itertools import pairwise
from time import perf_counter
from typing import final

import numpy as np

from unisono.measure.profile.instrument import Key, Span
from unisono.models.base import Array
from unisono.models.chain import Chain
from unisono.models.layers import Layer, Pass, Room
from unisono.models.losses import Loss, LossPass

LOSS = "loss"
"""Its name among modules."""


def keys_of(name: str, part: Layer | Loss) -> tuple[Key, Key]:
    """The layers of forward and backward; what has no number is called by its kind."""
    kind = type(part).__name__
    return ("forward", name or kind, kind), ("backward", name or kind, kind)


@final
class Stamps:
    """Readings of the clock: one before the first layer of a call, one after each layer and each half of the loss.

    each: False: only where forward and backward begin and end, which costs next to nothing.
    """

    def __init__(self, *, each: bool = True) -> None:
        self.each = each
        self.read: list[float] = []
        self.held: dict[Key, int] = {}
        """Bytes that a layer holds for its work, by the key of its forward."""
        self._keys: list[Key] = []
        self.price_s = 0.0
        """What a reading costs, which is taken off every layer's time."""

    def watch(self, chain: Chain) -> Chain:
        """A chain of watched layers over the same ones; called once."""
        forwards: list[Key] = []
        backwards: list[Key] = []

        def layer(name: str, inner: Layer) -> Layer:
            forward, backward = keys_of(name, inner)
            forwards.append(forward)
            backwards.insert(0, backward)
            first = len(forwards) == 1
            return WatchedLayer(inner, self, forward, first=first) if self.each or first else inner

        def loss(inner: Loss) -> Loss:
            forward, backward = keys_of(LOSS, inner)
            self._keys = [*forwards, forward, backward, *backwards] if self.each else [("forward",), ("backward",)]
            return WatchedLoss(inner, self, forward)

        return chain.wrapped(layer, loss)

    def shortest_s(self) -> float:
        """Between two readings, of all that there are."""
        return min((ended - begun for begun, ended in pairwise(self.read)), default=0.0)

    def spans(self) -> list[Span]:
        """What was read, as spans of layers, and of forward and backward as wholes."""
        found: list[Span] = []
        width, half = len(self._keys) + 1, len(self._keys) // 2
        for at in range(0, len(self.read), width):
            times = self.read[at : at + width]
            if self.each:
                ends = (max(begun, ended - self.price_s) for begun, ended in pairwise(times))
                found += zip(self._keys, times, ends, strict=False)
            found += [(("forward",), times[0], times[half]), (("backward",), times[half], times[-1])]
        return found


@final
class WatchedLayer(Layer):
    """`inner`, with its calls noted."""

    def __init__(self, inner: Layer, stamps: Stamps, key: Key, *, first: bool) -> None:
        self._inner, self._stamps, self._key, self._first = inner, stamps, key, first
        self.layout, self.buffers_layout, self.draws = inner.layout, inner.buffers_layout, inner.draws

    def open(self, room: Room) -> Pass:
        opened = self._inner.open(room)
        self._stamps.held[self._key] = held_bytes(opened, [room.params, room.buffers, room.new_buffers])
        return WatchedPass(opened, self._stamps, first=self._first)

    def width(self, width: int) -> int:
        return self._inner.width(width)

    def init(self, params: Array, buffers: Array, rng: np.random.Generator) -> None:
        self._inner.init(params, buffers, rng)


@final
class WatchedPass(Pass):
    def __init__(self, inner: Pass, stamps: Stamps, *, first: bool) -> None:
        self._inner, self._first, self._each, self._stamp = inner, first, stamps.each, stamps.read.append
        self._forward, self._backward = inner.forward, inner.backward

    def forward(self, x: Array) -> Array:
        if self._first:
            self._stamp(perf_counter())
        y = self._forward(x)
        if self._each:
            self._stamp(perf_counter())
        return y

    def backward(self, dy: Array) -> Array:
        dx = self._backward(dy)
        if self._each or self._first:
            self._stamp(perf_counter())
        return dx

    def infer(self, x: Array) -> Array:
        return self._inner.infer(x)

    def bind_grads(self, grads: Array) -> None:
        self._inner.bind_grads(grads)


@final
class WatchedLoss(Loss):
    """`inner`, with its calls noted."""

    def __init__(self, inner: Loss, stamps: Stamps, key: Key) -> None:
        self._inner, self._stamps, self._key = inner, stamps, key
        self.classifies = inner.classifies

    def open(self, shape: tuple[int, int, int], dtype: np.dtype) -> LossPass:
        opened = self._inner.open(shape, dtype)
        self._stamps.held[self._key] = held_bytes(opened, [])
        return WatchedLossPass(opened, self._stamps)


@final
class WatchedLossPass(LossPass):
    def __init__(self, inner: LossPass, stamps: Stamps) -> None:
        self._inner, self._each, self._stamp = inner, stamps.each, stamps.read.append
        self.sums = inner.sums

    def forward(self, z: Array, y: Array) -> None:
        self._inner.forward(z, y)
        self._stamp(perf_counter())

    def backward(self, scale: float) -> Array:
        dz = self._inner.backward(scale)
        if self._each:
            self._stamp(perf_counter())
        return dz


def held_bytes(part: Pass | LossPass, lent: list[Array]) -> int:
    """The arrays that it holds, each piece of memory once, without those that were `lent` to it."""
    held = [value for value in vars(part).values() if isinstance(value, np.ndarray)]
    others = {id(_owner(array)) for array in lent}
    return sum(array.nbytes for at, array in {id(o): o for o in map(_owner, held)}.items() if at not in others)


def _owner(array: Array) -> Array:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
