"""Spans: what one rank did, from when until when, and what that adds up to.

The one idea: a span is a key and two readings of time.perf_counter, which all processes of a node share, so the spans
of all ranks lie on one axis. Keys say what it was: ("step",), ("forward",), ("wait",), or, of a layer, ("forward", "0",
"Linear").

    phases_of([(("step",), 0.0, 3.0), (("wait",), 1.0, 2.0)]); layers_of([(("forward", "0", "Linear"), 0.0, 1.0)])

Limits: ranks of other nodes have clocks of their own.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TypeAlias, final

Key: TypeAlias = tuple[str, ...]
Span: TypeAlias = tuple[Key, float, float]

PHASES = ("data", "forward", "backward", "waiting", "summing", "optimizer", "other")
"""What a step is made of, in its order. Sync is waiting and summing; other is what lies between all these."""
_OF = {"sum": "summing", "exchange": "summing", "wait": "waiting", "update": "optimizer"}


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
