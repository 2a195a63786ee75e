"""Kernel check: whether a shard's loss and gradient have the same bits wherever and whenever a processor computes them.

The one idea: "same bits on any number of ranks" rests on what matrix kernels do, and those belong to the processor and
its libraries. So the assumption is tried on the machine at hand: one shard alone is the reference; then the same shard
in every position of a group, from memory at other addresses, and after calls of another shape.

    dependences(model, x, y, other)            # [] or ["the position in a group: shard 2 of 3"]

Two sets of trials: `QUICK` takes a few shards, for the start of a run; `THOROUGH` is for `unisono doctor` and tests.
Limits: finds what these shapes show; a kernel for other shapes may still differ.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, final

import numpy as np

from unisono import aligned
from unisono.models.base import Array, Model
from unisono.models.nets import build
from unisono.rng import generator

_PAGE_BYTES = 4096
_SPARE = 64
"""Elements beyond an array, to place it elsewhere within them."""


@final
class Trials(NamedTuple):
    """What is varied."""

    groups: int
    """The most shards in one call."""
    offsets_bytes: tuple[int, ...]
    """Where samples may begin, counted from a 64-byte border."""
    borders: tuple[int, ...]
    """By how many 64-byte borders parameters and gradients are moved."""


QUICK = Trials(2, (), (1,))
THOROUGH = Trials(5, tuple(range(4, 64, 4)), (1, 2, 3))


@final
class Case(NamedTuple):
    """A network, and samples for it: x (k, b, features), y (k, b) or (k, b, outputs)."""

    make: Callable[[], Model]
    x: Array
    y: Array
    other: tuple[Array, Array]
    """Samples in a shard of another size."""


def dependences(model: Model, x: Array, y: Array, other: tuple[Array, Array], trials: Trials = THOROUGH) -> list[str]:
    """What the bits of a shard depend on and should not; [] on a processor that keeps the promise."""
    count = min(len(x), trials.groups)
    reference = _Reference(model, x, y)
    found: list[str] = []

    def look(what: str, shards: range, **where: int) -> None:
        if reference.differ(shards, **where):
            found.append(what)

    look("whether it is computed for the first time", range(1))
    for size in range(2, count + 1):
        for first in {0, len(x) - size}:
            look(f"the position in a group of {size}", range(first, first + size))
    for offset in trials.offsets_bytes:
        look(f"the address of its samples ({offset} bytes past a border)", range(count), offset_bytes=offset)
    for border in trials.borders:
        look(f"the address of its parameters ({64 * border} bytes further on)", range(count), border=border)
    _Reference(model, *other)
    look("what was computed before", range(count))
    return list(dict.fromkeys(found))


@final
class _Reference:
    """What each shard gives when it is computed alone."""

    def __init__(self, model: Model, x: Array, y: Array) -> None:
        self._model, self._x, self._y = model, x, y
        self._start = _place(model.layout.length), _place(model.buffers_layout.length)
        model.init(*self._start, generator(0, "init"))
        self._alone = [next(self._compute(range(shard, shard + 1))) for shard in range(len(x))]

    def differ(self, shards: range, offset_bytes: int = 0, border: int = 0) -> bool:
        found = self._compute(shards, offset_bytes, border)
        return any(bits != self._alone[shard] for shard, bits in zip(shards, found, strict=True))

    def _compute(self, shards: range, offset_bytes: int = 0, border: int = 0) -> Iterator[tuple[bytes, ...]]:
        """The bits of each shard of one call: loss, gradient, new buffers."""
        model, length = self._model, self._model.layout.length
        params, buffers = (_place(len(vector), border) for vector in self._start)
        params[...], buffers[...] = self._start
        model.bind(params, buffers)
        row = -(-length // 16) * 16
        grads = _place(len(shards) * row, border).reshape(len(shards), row)
        x, y = (_moved(array[shards.start : shards.stop], offset_bytes) for array in (self._x, self._y))
        noise = lambda shard: generator(0, "dropout", shards.start + shard)  # noqa: E731
        sums = model.loss_and_grad(x, y, grads, 1.0 / x.shape[1], noise)
        for shard in range(len(shards)):
            arrays = sums.loss_sum[shard], grads[shard, :length], sums.new_buffers[shard]
            yield tuple(array.tobytes() for array in arrays)


def _place(length: int, border: int = 0) -> Array:
    """A vector that begins so many 64-byte borders past the start of a page."""
    memory = aligned.zeros(length + _PAGE_BYTES // 4 + 16 * border)
    start = -memory.ctypes.data % _PAGE_BYTES // 4 + 16 * border
    return memory[start : start + length]


def _moved(array: Array, offset_bytes: int) -> Array:
    """A copy of `array` that begins so far past a border; a stack if it is 0."""
    if not offset_bytes:
        return aligned.as_stack(array.copy(), array.dtype)
    memory = aligned.empty(array.nbytes + _SPARE + offset_bytes, np.uint8)
    copy = memory[offset_bytes : offset_bytes + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def samples(shape: tuple[int, ...], outputs: int, seed: int, shards: int = 5) -> tuple[Array, Array]:
    """Made-up ones for a classifier of so many classes: x (shards, *shape), y (shards, shape[0])."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(shards, *shape)).astype(np.float32)
    return x, rng.integers(0, outputs, (shards, shape[0]))


def numpy_cases(seed: int) -> dict[str, Case]:
    """Every layer of the NumPy engine, by name; sizes are odd, and drawn from `seed`."""
    rng = np.random.default_rng(seed)
    features, hidden, outputs, batch = (int(rng.choice(sizes)) for sizes in _SIZES)
    x, y = samples((batch, features), outputs, seed)
    targets = np.random.default_rng(seed).normal(size=(*y.shape, 1)).astype(np.float32)
    other = samples((batch + 2, features), outputs, seed + 1)
    numbers = other[0], np.ones((*other[1].shape, 1), np.float32)
    found = {"linear": Case(lambda: build("linear", features, 1), x, targets, numbers)}
    for activation in ("relu", "tanh", "sigmoid", "gelu"):
        make = lambda activation=activation: build(f"mlp:{hidden},7", features, outputs, activation, 0.25)  # noqa: E731
        found[f"mlp, {activation}, dropout"] = Case(make, x, y, other)
    found["batch norm"] = Case(lambda: build(f"bn-mlp:{hidden}", features, outputs), x, y, other)
    return found


_SIZES = ((1, 2, 3, 13, 30, 31, 97), (1, 5, 17, 33, 64), (2, 3, 5, 10), (1, 2, 3, 7, 24, 50))
"""Features, hidden units, classes, samples in a shard."""
