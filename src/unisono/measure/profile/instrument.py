"""What is measured of one rank (spans, their sums, table rows), and Instrument: how an engine gives them.

    phases_of([(("step",), 0.0, 3.0), (("wait",), 1.0, 2.0)]); layers_of([(("forward", "0", "Linear"), 0.0, 1.0)])
    with instrument.watching("modules"): strategy.step(batch); instrument.begin("modules"); strategy.step(batch)
    instrument.modules(); instrument.spans("modules")

The one idea: a span is a key and two readings of time.perf_counter, which all processes of a node share, so the spans
of all ranks lie on one axis. Keys say what it was: ("step",), ("forward",), ("wait",), or, of a layer, ("forward", "0",
"Linear"). Measuring costs time, so each part is switched on for some steps of its own, between steps that are not
measured; the difference is reported.

Limits: ranks of other nodes have clocks of their own.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, TypeAlias, final

from unisono.models.base import Model

Key: TypeAlias = tuple[str, ...]
Span: TypeAlias = tuple[Key, float, float]
PHASES = ("data", "forward", "backward", "waiting", "summing", "optimizer", "other")
"""What a step is made of, in its order. Sync is waiting and summing; other is what lies between all these."""
_OF = {"sum": "summing", "exchange": "summing", "wait": "waiting", "update": "optimizer"}
Row = dict[str, Any]


def phases_of(spans: list[Span]) -> dict[str, float]:
    """Seconds of each of `PHASES`, and of all steps under "step"; every moment of a step counts once."""
    total = dict.fromkeys((*PHASES, "step"), 0.0)
    waits = sorted((begun, ended) for key, begun, ended in spans if key == ("wait",))
    starts = [begun for begun, _ in waits]
    for key, begun, ended in spans:
        if len(key) > 1:
            continue  # a layer's, inside forward and backward
        inside = 0.0
        if key == ("update",):  # waiting for norms lies inside
            inside = sum(stop - start for start, stop in waits[bisect_left(starts, begun) : bisect_left(starts, ended)])
        total[_OF.get(key[0], key[0])] += ended - begun - inside
    total["other"] = total["step"] - sum(total[name] for name in PHASES)
    return total


@final
@dataclass
class Cost:
    """What the calls of something took, added up."""

    calls: int = 0
    total_s: float = 0.0
    self_s: float = 0.0
    """Without what is a row of its own inside it."""
    memory_bytes: int | None = None
    self_memory_bytes: int | None = None
    each_s: list[float] = field(default_factory=list)
    """What each call took, where that is kept."""

    def add(self, total_s: float, self_s: float, memory_bytes: int = 0, self_memory_bytes: int = 0) -> None:
        """One more call; what it allocated (less what it gave back) counts where memory is counted at all."""
        self.calls += 1
        self.total_s += total_s
        self.self_s += self_s
        if self.memory_bytes is not None and self.self_memory_bytes is not None:
            self.memory_bytes += memory_bytes
            self.self_memory_bytes += self_memory_bytes


def layers_of(spans: list[Span]) -> dict[Key, Cost]:
    """The calls of each layer by key, those that contain others less these; spans of one thread, so they nest."""
    costs: dict[Key, Cost] = {}
    open_spans: list[tuple[float, float]] = []  # (begun, duration) that no enclosing span has claimed yet
    for key, begun, ended in spans:
        if len(key) == 1:
            continue
        inside = 0.0
        while open_spans and open_spans[-1][0] >= begun:
            inside += open_spans.pop()[1]
        open_spans.append((begun, ended - begun))
        cost = costs.setdefault(key, Cost())
        cost.add(ended - begun, ended - begun - inside)
        cost.each_s.append(ended - begun)
    return costs


class Instrument(ABC):
    """Measures the parts of the model of one rank."""

    model: Model
    """The model to train with; it computes the same numbers as the model that is measured, to the last bit."""

    light: tuple[str, ...]
    """What can be watched for a few steps at a time: phases, and modules where that costs little."""

    heavy: str
    """What is watched in one go: operators."""

    @abstractmethod
    def watching(self, part: str) -> AbstractContextManager[None]:
        """Steps inside are watched; one `part` at a time, `heavy` once; "": none."""

    @abstractmethod
    def begin(self, part: str) -> None:
        """Forgets what was seen of a part so far, while it is watched: a first call makes what later ones use."""

    def take_off(self, longer_s: float) -> None:  # noqa: B027  (where that is not known)
        """Watching modules took so much longer than watching phases, in all steps: that is no module's time."""

    @abstractmethod
    def spans(self, part: str) -> list[Span]:
        """The spans of forward and backward as wholes, and of modules; those of one call before those of the next."""

    @abstractmethod
    def modules(self) -> list[Row]:
        """A row per module and phase, forward or backward."""

    @abstractmethod
    def operators(self) -> list[Row]:
        """A row per operator, module and phase, and per shape of its inputs if that was asked for."""


def row_of(key: Key, cost: Cost, **more: Any) -> Row:
    """key: (phase, module, kind)."""
    return {"phase": key[0], "module": key[1], "kind": key[2], **more, **cost_row(cost)}


def cost_row(cost: Cost) -> Row:
    """The columns that every table has."""
    return {
        "self_s": cost.self_s,
        "total_s": cost.total_s,
        "average_s": cost.total_s / cost.calls if cost.calls else 0.0,
        "median_s": median(cost.each_s) if cost.each_s else None,
        "memory_bytes": cost.memory_bytes,
        "self_memory_bytes": cost.self_memory_bytes,
        "calls": cost.calls,
    }
