"""Meter: the energy of one node during a run, from its counters, or estimated from the time of its processors.

The one idea: what was measured and what was estimated are never mixed up: every reading carries its source. Counters
are the node's, so a node is read by one process however many ranks it has.

    meter = Meter(find_counters(gpus=None), watts_per_core=8.0); meter.follow(); reading = meter.read(cpu_s=120.0)

rapl and nvml are counters; estimate is the time of the processors times a stated power of one busy core, without what
the machine takes when it is idle; none: nothing can be said. Limits: counters include other programs, and what the
machine takes when it is idle, which `idle_w` tells where it could be measured before the run.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from unisono.energy.counters import Counter, find_gpus, find_zones

IDLE_S = 0.25
"""How long an idle machine is looked at before a run."""


@final
@dataclass(frozen=True)
class Reading:
    """The energy of one node, or of several together."""

    joules: float | None
    source: str
    """rapl, nvml, rapl+nvml, estimate, or none."""
    seconds: float
    idle_w: float | None = None
    """What the same counters showed when nothing ran; None: not known."""
    parts: dict[str, float] | None = None
    """Joules by counter."""
    note: str = ""
    """How it was found, or why not."""

    @property
    def idle_j(self) -> float | None:
        return None if self.idle_w is None else self.idle_w * self.seconds

    def facts(self, samples: int) -> dict[str, Any]:
        """The entries of a summary."""
        per_sample = self.joules / samples if self.joules is not None and samples else None
        return {
            "energy_j": self.joules,
            "energy_source": self.source,
            "energy_per_sample_j": per_sample,
            "energy_idle_j": self.idle_j,
            "energy_note": self.note,
        }


@final
@dataclass(frozen=True)
class Counters:
    """What a node has, and what it lacks."""

    found: Sequence[Counter] = ()
    missing: Sequence[str] = ()


def find_counters(gpus: Sequence[int] | None = ()) -> Counters:
    """Those of the processors, and of the GPUs with these numbers (None: all)."""
    zones, no_zones = find_zones()
    boards, no_boards = find_gpus(gpus) if gpus is None or len(gpus) else ([], "")
    return Counters([*zones, *boards], [text for text in (no_zones, no_boards) if text])


@final
class Meter:
    """The meter of this node. `watts_per_core`: 0: no estimate."""

    def __init__(self, counters: Counters, watts_per_core: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.counters, self._watts, self._clock = counters, watts_per_core, clock
        self._begun = clock()
        self._base: dict[str, float] = {}
        self.idle_w: float | None = None
        self.follow()

    def measure_idle(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Looks at an idle machine for a moment, and begins to count after that; without counters it does nothing."""
        if not self.counters.found:
            return
        sleep(IDLE_S)
        self.follow()
        self.idle_w = self.watts
        self._begun = self._clock()
        self._base = {counter.name: counter.joules for counter in self.counters.found}

    def follow(self) -> None:
        """Reads the counters; to be called every few seconds."""
        now = self._clock()
        for counter in self.counters.found:
            counter.follow(now)

    @property
    def watts(self) -> float | None:
        """The power of the node between the last two readings, as far as counters see it."""
        known = [counter.watts for counter in self.counters.found if counter.watts is not None]
        return sum(known) if known else None

    def read(self, cpu_s: float) -> Reading:
        """Since it was made. cpu_s: what all ranks of the node, and who started them, have used of its processors."""
        self.follow()
        seconds, missing = self._clock() - self._begun, "; ".join(self.counters.missing)
        if self.counters.found:
            parts = {one.name: one.joules - self._base.get(one.name, 0.0) for one in self.counters.found}
            source = "+".join(dict.fromkeys(one.kind for one in self.counters.found))
            return Reading(sum(parts.values()), source, seconds, self.idle_w, parts, missing)
        if self._watts <= 0:
            return Reading(None, "none", seconds, note=missing)
        told = f"{cpu_s:.1f} s of processor time x {self._watts:g} W a core, idle power not included; {missing}"
        return Reading(cpu_s * self._watts, "estimate", seconds, note=told)


def sum_readings(nodes: Sequence[Reading]) -> Reading:
    """Of all nodes of a run; nothing can be said if nothing can be said of one of them, or if only some are estimated:
    what a counter shows includes other programs and idle power, so the sum would be neither."""
    if len(nodes) == 1:
        return nodes[0]
    if len({node.source == "estimate" for node in nodes if node.joules is not None}) > 1:
        told = ", ".join("?" if node.joules is None else f"{node.joules:.1f} J {node.source}" for node in nodes)
        note = f"nodes with counters and nodes with estimates are not added up: {told}"
        return Reading(None, "none", max(node.seconds for node in nodes), note=note)
    known = [node.joules for node in nodes if node.joules is not None]
    whole = len(known) == len(nodes)
    idle = [node.idle_w for node in nodes if node.idle_w is not None]
    return Reading(
        sum(known) if whole else None,
        "+".join(dict.fromkeys(kind for node in nodes for kind in node.source.split("+"))) if whole else "none",
        max(node.seconds for node in nodes),
        sum(idle) if len(idle) == len(nodes) else None,
        note="; ".join(dict.fromkeys(node.note for node in nodes if node.note)),
    )
