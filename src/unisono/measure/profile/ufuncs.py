"""Operators of the NumPy engine, timed one by one: what each matmul, add, exp inside a layer takes.

The one idea: NumPy asks arrays of a subclass before it computes with them (`__array_ufunc__`). So after a layer was
opened its arrays are replaced by views of such a subclass: the memory, the kernels and the bits stay what they are, and
every operation passes by here.

    calls = Calls(shapes=False); watched = calls.watch(chain); watched.loss_and_grad(...)
    calls.costs[("forward", "0", "Linear"), "matmul", ""].total_s

An operator's time is without what looking costs, which is more than most of them take: times of *layers* are measured
elsewhere (`timed_layers.py`). Limits: assignments into arrays (`a[...] = b`) are no operators; what a layer does in
Python, between them, is not seen.
"""

from collections.abc import Callable
from time import perf_counter
from typing import Any, final

import numpy as np

from unisono.measure.profile.instrument import Cost, Key
from unisono.measure.profile.timed_layers import LOSS, keys_of
from unisono.models.base import Array
from unisono.models.chain import Chain
from unisono.models.layers import Layer, Pass, Room
from unisono.models.losses import Loss, LossPass

NOWHERE: Key = ("", "", "")


@final
class Calls:
    """What was called, by (phase, module, kind), operator and shapes."""

    def __init__(self, *, shapes: bool) -> None:
        """shapes: keep calls with inputs of other shapes apart."""
        self._shapes = shapes
        self.here = NOWHERE
        """What is being computed."""
        self.costs: dict[tuple[Key, str, str], Cost] = {}
        self._kind = _array_type(self.note)

    def note(self, name: str, inputs: tuple[Any, ...], took_s: float) -> None:
        """An operator was done."""
        told = ", ".join(_shape(x) for x in inputs) if self._shapes else ""
        key = (self.here, name, told)
        if key not in self.costs:
            self.costs[key] = Cost()
        self.costs[key].add(took_s, took_s)

    def watch(self, chain: Chain) -> Chain:
        """A chain over the same layers whose operators are noted."""
        return chain.wrapped(
            lambda name, layer: DetailedLayer(name, layer, self), lambda loss: DetailedLoss(loss, self)
        )

    def replace_arrays(self, part: Pass | LossPass) -> None:
        """The arrays that it holds become watched views of themselves."""
        for name, value in list(vars(part).items()):
            if isinstance(value, np.ndarray):
                setattr(part, name, value.view(self._kind))
            elif isinstance(value, list) and value and all(isinstance(entry, np.ndarray) for entry in value):
                setattr(part, name, [entry.view(self._kind) for entry in value])


def _array_type(note: Callable[[str, tuple[Any, ...], float], None]) -> type[np.ndarray]:
    """A type of its own for each `Calls`: arrays are made too often to carry a reference each."""

    @final
    class Watched(np.ndarray):
        def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
            given = tuple(_plain(x) for x in inputs)
            if "out" in options:
                options["out"] = tuple(_plain(x) for x in options["out"])
            call = ufunc if method == "__call__" else getattr(ufunc, method)
            begun = perf_counter()
            found = call(*given, **options)
            took_s = perf_counter() - begun
            note(ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}", given, took_s)
            return found

        def argmax(self, *args: Any, **options: Any) -> Any:
            return _timed("argmax", self, args, options)

        def take(self, *args: Any, **options: Any) -> Any:
            return _timed("take", self, args, options)

    def _timed(name: str, array: np.ndarray, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        plain, given = _plain(array), [_plain(x) for x in args]
        wanted = {key: _plain(value) for key, value in options.items()}
        begun = perf_counter()
        found = getattr(plain, name)(*given, **wanted)
        took_s = perf_counter() - begun
        note(name, (plain,), took_s)
        return found

    return Watched


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, np.ndarray) else value


def _shape(value: Any) -> str:
    return "x".join(map(str, value.shape)) or "1" if isinstance(value, np.ndarray) else "1"


@final
class DetailedLayer(Layer):
    """`inner`, with its operators noted."""

    def __init__(self, name: str, inner: Layer, calls: Calls) -> None:
        self._name, self._inner, self._calls = name, inner, calls
        self.layout, self.buffers_layout, self.draws = inner.layout, inner.buffers_layout, inner.draws

    def open(self, room: Room) -> Pass:
        return DetailedPass(self._inner.open(room), keys_of(self._name, self._inner), self._calls)

    def width(self, width: int) -> int:
        return self._inner.width(width)

    def init(self, params: Array, buffers: Array, rng: np.random.Generator) -> None:
        self._inner.init(params, buffers, rng)


@final
class DetailedPass(Pass):
    def __init__(self, inner: Pass, keys: tuple[Key, Key], calls: Calls) -> None:
        self._inner, self._calls = inner, calls
        self._forward_key, self._backward_key = keys
        calls.replace_arrays(inner)

    def bind_grads(self, grads: Array) -> None:
        self._inner.bind_grads(grads)
        self._calls.replace_arrays(self._inner)

    def forward(self, x: Array) -> Array:
        self._calls.here = self._forward_key
        return self._inner.forward(x)

    def backward(self, dy: Array) -> Array:
        self._calls.here = self._backward_key
        return self._inner.backward(dy)

    def infer(self, x: Array) -> Array:
        self._calls.here = NOWHERE
        return self._inner.infer(x)


@final
class DetailedLoss(Loss):
    """`inner`, with its operators noted."""

    def __init__(self, inner: Loss, calls: Calls) -> None:
        self._inner, self._calls = inner, calls
        self.classifies = inner.classifies

    def open(self, shape: tuple[int, int, int], dtype: np.dtype) -> LossPass:
        return DetailedLossPass(self._inner.open(shape, dtype), keys_of(LOSS, self._inner), self._calls)


@final
class DetailedLossPass(LossPass):
    def __init__(self, inner: LossPass, keys: tuple[Key, Key], calls: Calls) -> None:
        self._inner, self._calls = inner, calls
        self._forward_key, self._backward_key = keys
        self.sums = inner.sums
        calls.replace_arrays(inner)

    def forward(self, z: Array, y: Array) -> None:
        self._calls.here = self._forward_key
        self._inner.forward(z, y)

    def backward(self, scale: float) -> Array:
        self._calls.here = self._backward_key
        return self._inner.backward(scale)
