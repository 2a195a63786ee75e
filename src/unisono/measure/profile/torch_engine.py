"""The torch engine looked into: torch's own profiler, with every operator put down to the module that it belongs to.

The one idea: hooks mark where each module's forward begins and ends, once for our clock and once for torch's profiler.
An operator belongs to the innermost module that was open; what autograd does backward carries the number of the
operator that it undoes, and so belongs to the same module.

    instrument = TorchInstrument(model, memory=True, shapes=False)
    with instrument.watching("modules"): model.loss_and_grad(x, y, grads, scale)

Memory is what was allocated less what was given back, in all calls, as torch's profiler counts it.
Limits: the profiler notes every operator in memory (some 200 to 2,000 a step and shard), and looking doubles the time
of small networks: the price is measured. What a module does in `torch.compile`d code is one operator.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from time import perf_counter
from typing import Any, final

from torch import Tensor, nn
from torch.autograd.profiler import record_function
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile

from unisono.environment.os_environ import silence_kineto
from unisono.measure.profile.instrument import Cost, Instrument, Key, Row, Span, layers_of, row_of
from unisono.measure.profile.timed_layers import LOSS
from unisono.models.torch.model import TorchModel
from unisono.models.torch.precision import Gradients, Precision

MARK = "unisono module "
"""Begins the name of a module's range."""
UNDOES = "autograd::engine::evaluate_function: "
"""Begins the name of what undoes an operator."""
BEGIN = "unisono begin"
"""What came before the last range of this name does not count."""
LOSS_KEY: Key = ("forward", LOSS, LOSS)
LOOSE: Key = ("between", "(between modules)", "(between modules)")
"""The module of operators outside all modules: copies of gradients, scores."""


@final
class TorchInstrument(Instrument):
    """The instrument of a torch module."""

    light, heavy = ("phases",), "modules"

    def __init__(self, model: TorchModel, *, memory: bool, shapes: bool) -> None:
        self.model, self._module, self._memory, self._shapes = model, model.module, memory, shapes
        self._watch, self._found = _Watch(), dict[str, list[Span]]()
        model.wrap_precision(self._watch.around)
        self._keys = {
            MARK + name: ("forward", name or type(module).__name__, type(module).__name__)
            for name, module in self._module.named_modules()
        }
        self._events: list[FunctionEvent] = []
        self._whose: dict[int, Key] = {}

    @contextmanager
    def watching(self, part: str) -> Iterator[None]:
        self._watch.found = self._found.setdefault(part, [])
        self._watch.on = bool(part)
        try:
            with self._looking() if part == "modules" else nullcontext():
                yield
        finally:
            self._watch.on = False

    @contextmanager
    def _looking(self) -> Iterator[None]:
        silence_kineto()
        looking = profile(
            activities=[ProfilerActivity.CPU], record_shapes=self._shapes, profile_memory=self._memory, acc_events=True
        )
        hooks = [
            hook
            for name, module in self._module.named_modules()
            for hook in self._watch.hooks(module, MARK + name, self._keys[MARK + name])
        ]
        try:
            with looking:
                yield
        finally:
            for hook in hooks:
                hook.remove()
        events = list(looking.events() or [])  # type: ignore[no-untyped-call]
        starts = [number for number, event in enumerate(events) if event.name == BEGIN]
        self._events = events[starts[-1] + 1 if starts else 0 :]
        self._whose = self._places()

    def begin(self, part: str) -> None:
        self._watch.found.clear()
        with record_function(BEGIN):
            pass

    def spans(self, part: str) -> list[Span]:
        return self._found[part]

    def modules(self) -> list[Row]:
        costs = layers_of(self._found["modules"])
        for event in self._events:
            if event.name.startswith(UNDOES):
                took_s = event.cpu_time_total / 1e6
                costs.setdefault(self._whose[event.id], Cost()).add(took_s, took_s)
        if self._memory:
            self._add_memory(costs)
        return [row_of(key, cost) for key, cost in costs.items()]

    def _add_memory(self, costs: dict[Key, Cost]) -> None:
        for cost in costs.values():
            cost.memory_bytes = cost.self_memory_bytes = 0
        for event in self._events:
            if event.name in self._keys:
                inner = sum(child.cpu_memory_usage for child in event.cpu_children if child.name in self._keys)
                cost = costs[self._keys[event.name]]
            elif event.name.startswith(UNDOES):
                inner, cost = 0, costs[self._whose[event.id]]
            elif event.name == LOSS:
                inner, cost = 0, costs[LOSS_KEY]
            else:
                continue
            cost.memory_bytes = (cost.memory_bytes or 0) + event.cpu_memory_usage
            cost.self_memory_bytes = (cost.self_memory_bytes or 0) + event.cpu_memory_usage - inner

    def operators(self) -> list[Row]:
        found: dict[tuple[Key, str, str], Cost] = {}
        for event in self._events:
            if event.name in self._keys or event.name in (LOSS, "[memory]") or event.name.startswith(UNDOES):
                continue
            given: list[list[int]] = list(event.input_shapes or [])  # type: ignore[arg-type]
            shapes = ", ".join("x".join(map(str, shape)) or "1" for shape in given)
            entry = self._whose.get(event.id, LOOSE), event.name, shapes if self._shapes else ""
            if entry not in found:
                found[entry] = Cost(memory_bytes=0, self_memory_bytes=0) if self._memory else Cost()
            times = event.cpu_time_total / 1e6, event.self_cpu_time_total / 1e6
            found[entry].add(*times, event.cpu_memory_usage, event.self_cpu_memory_usage)
        return [row_of(key, cost, operator=name, shapes=shapes) for (key, name, shapes), cost in found.items()]

    def _places(self) -> dict[int, Key]:
        """The module of each event, by its id."""
        places, numbers = dict[int, Key](), dict[int, Key]()
        for event in self._events:  # in the order in which they began: parents before children
            above = places.get(event.cpu_parent.id) if event.cpu_parent is not None else None
            if event.name in self._keys:
                places[event.id] = self._keys[event.name]
            elif event.name == LOSS:
                places[event.id] = LOSS_KEY
            elif event.name.startswith(UNDOES):
                places[event.id] = ("backward", *numbers.get(event.sequence_nr, LOOSE)[1:])
            elif above is not None:
                places[event.id] = above
            if event.sequence_nr >= 0 and places.get(event.id, LOOSE)[0] == "forward":
                numbers[event.sequence_nr] = places[event.id]
        return places


@final
class _Watch:
    """What hooks and the precision note while it is `on`."""

    def __init__(self) -> None:
        self.found: list[Span] = []
        self.on = False
        self._open: list[tuple[Any, float]] = []

    def around(self, inner: Precision) -> Precision:
        return _WatchedPrecision(inner, self)

    def hooks(self, module: nn.Module, mark: str, key: Key) -> list[Any]:
        def enter(module: nn.Module, given: Any) -> None:
            begun = perf_counter()
            mark_range = record_function(mark)
            mark_range.__enter__()  # type: ignore[no-untyped-call]
            self._open.append((mark_range, begun))

        def leave(module: nn.Module, given: Any, found: Any) -> None:
            mark_range, begun = self._open.pop()
            mark_range.__exit__(None, None, None)
            self.found.append((key, begun, perf_counter()))

        return [module.register_forward_pre_hook(enter), module.register_forward_hook(leave, always_call=True)]


@final
class _WatchedPrecision(Precision):
    """Notes forward (the loss included) and backward as wholes, and what lies between the module and the backward."""

    def __init__(self, inner: Precision, watch: _Watch) -> None:
        self._inner, self._watch = inner, watch
        self._begun = self._forward_done = 0.0
        self._loss: Any = None

    def forward(self, module: nn.Module, x: Tensor) -> Tensor:
        if not self._watch.on:
            return self._inner.forward(module, x)
        self._begun = perf_counter()
        z = self._inner.forward(module, x)
        self._forward_done = perf_counter()
        self._loss = record_function(LOSS)
        self._loss.__enter__()
        return z

    def gradients(self, loss: Tensor, params: Any, weight: Tensor) -> Gradients:
        if not self._watch.on:
            return self._inner.gradients(loss, params, weight)
        self._loss.__exit__(None, None, None)
        between = perf_counter()
        found = self._inner.gradients(loss, params, weight)
        ended = perf_counter()
        self._watch.found += [
            (LOSS_KEY, self._forward_done, between),
            (("forward",), self._begun, between),
            (("backward",), between, ended),
        ]
        return found
