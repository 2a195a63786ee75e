"""The NumPy engine looked into: layers in one round of steps, the operators inside them in another.

The one idea: chains of the same layers over the same parameters, one of which is the model at a time: the plain one,
those with a watch on forward and backward or on each layer (`timed_layers.py`), and on the operators inside
(`ufuncs.py`).

    instrument = NumpyInstrument(chain, memory=True, shapes=False)
    with instrument.watching("modules"): instrument.model.loss_and_grad(x, y, grads, scale)

Memory is what a layer holds for its work: allocated once, however often it is called, so forward and backward share it
and it stands with the forward.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import final

from unisono.measure.profile.instrument import Instrument, Row, Span, layers_of, row_of
from unisono.measure.profile.timed_layers import Stamps
from unisono.measure.profile.ufuncs import Calls
from unisono.models.base import Array, Model
from unisono.models.chain import Chain
from unisono.models.wrappers import Wrapper


@final
class NumpyInstrument(Instrument):
    """The instrument of a chain of layers."""

    light, heavy = ("phases", "modules"), "operators"

    def __init__(self, chain: Chain, *, memory: bool, shapes: bool) -> None:
        self._memory, self._stamps, self._calls = memory, Stamps(), Calls(shapes=shapes)
        self._ends = Stamps(each=False)
        others = {
            "phases": self._ends.watch(chain),
            "modules": self._stamps.watch(chain),
            "operators": self._calls.watch(chain),
        }
        self._choice = self.model = _Choice(chain, others)

    @contextmanager
    def watching(self, part: str) -> Iterator[None]:
        self._choice.choose(part)
        try:
            yield
        finally:
            self._choice.choose("")

    def begin(self, part: str) -> None:
        if part == "operators":
            self._calls.costs.clear()
        elif part:
            (self._stamps if part == "modules" else self._ends).read.clear()

    def take_off(self, longer_s: float) -> None:
        readings = len(self._stamps.read) - len(self._ends.read)
        price_s = max(0.0, longer_s) / readings if readings > 0 else 0.0
        # Every span holds a reading: what few steps of a busy machine took longer is not all the price.
        self._stamps.price_s = min(price_s, self._stamps.shortest_s())

    def spans(self, part: str) -> list[Span]:
        return (self._stamps if part == "modules" else self._ends).spans()

    def modules(self) -> list[Row]:
        rows = []
        for key, cost in layers_of(self.spans("modules")).items():
            if self._memory:
                cost.memory_bytes = cost.self_memory_bytes = self._stamps.held.get(key, 0)
            rows.append(row_of(key, cost))
        return rows

    def operators(self) -> list[Row]:
        return [
            row_of(key, cost, operator=name, shapes=shapes) for (key, name, shapes), cost in self._calls.costs.items()
        ]


@final
class _Choice(Wrapper):
    """One of several models over the same vectors: "" is the plain one."""

    def __init__(self, plain: Model, others: Mapping[str, Model]) -> None:
        super().__init__(plain)
        self._models = {"": plain, **others}

    def choose(self, name: str) -> None:
        self.inner = self._models[name]

    def bind(self, params: Array, buffers: Array) -> None:
        for model in self._models.values():
            model.bind(params, buffers)
