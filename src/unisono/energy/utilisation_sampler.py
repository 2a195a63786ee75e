"""Sampler: what every rank, the node and its GPUs do, every two seconds, as lines of utilisation.csv.

The one idea: a process that has nothing else to do (the supervisor) looks from outside, so training is not slowed.
Ranks that do nothing stand out, and are named.

    sampler = Sampler(meter, write); sampler.tick({0: pid, 1: pid}); sampler.idle_ranks()

A line: s_after_start, what (rank 0, all ranks, node, gpu 0), utilisation (cores in use: a rank's, the sum of the ranks
here, and those of the node that any program uses; of a GPU: share of the time), memory_bytes (likewise), power_w,
temperature_c; empty where nothing is known.

Limits: a rank that waits for others by spinning looks busy; ranks.csv has the time that each rank waited.
"""

import time
from collections.abc import Callable, Mapping
from math import inf
from typing import final

from unisono.energy.meter import Meter
from unisono.energy.resource_usage import Process, read_node, read_process, temperature_c

EVERY_S = 2.0
FIRST_S = 0.25
"""The first comes soon: short runs should have one."""
IDLE = 0.05
"""A rank that never used more of a core than this did nothing."""
LEAST = 2
"""Samples that this takes."""
HEADER = "s_after_start,what,utilisation,memory_bytes,power_w,temperature_c\n"


@final
class Sampler:
    """write(text): whole lines."""

    def __init__(
        self,
        meter: Meter,
        write: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        look: Callable[[int], Process | None] = read_process,
        before_s: float = 0.0,
        node: Callable[[], Process] = read_node,
    ) -> None:
        """before_s: what the lines that are there already have counted, of a run that is resumed."""
        self._meter, self._write, self._clock, self._look = meter, write, clock, look
        self._node, self._node_cpu_s = node, 0.0
        self._then = clock()
        self._begun = self._then - before_s
        self._due = inf
        self._last: dict[int, tuple[int, float]] = {}  # rank -> (pid, its CPU time at the last look)
        self._most: dict[int, float] = {}
        self._seen: dict[int, int] = {}

    def tick(self, pids: Mapping[int, int]) -> None:
        """Called often, with the process of each rank of this node; looks when it is time to."""
        now = self._clock()
        fresh = [rank for rank, pid in pids.items() if self._last.get(rank, (0, 0.0))[0] != pid]
        met = False
        for rank in fresh:  # from here on it is counted
            if (found := self._look(pids[rank])) is not None:
                self._last[rank], met = (pids[rank], found.cpu_s), True
                if self._due == inf:  # the first of all
                    self._then, self._due, self._node_cpu_s = now, now + FIRST_S, self._node().cpu_s
        known = {rank: pid for rank, pid in pids.items() if rank not in fresh}
        if now < self._due or (met and not known):  # ranks are there, and of none is anything known yet
            return
        self._due = now + EVERY_S
        self._meter.follow()
        self._write("".join(self._lines(now, known)))
        # One that is missing now is counted from where it is met again: its time until then is of no one interval.
        self._last = {rank: last for rank, last in self._last.items() if rank in pids}
        self._then = now

    def _lines(self, now: float, pids: Mapping[int, int]) -> list[str]:
        lines, seconds = [], max(1e-9, now - self._then)
        cores, memory = 0.0, 0
        for rank, pid in sorted(pids.items()):
            found = self._look(pid)
            if found is None:
                del self._last[rank]
                continue
            used = max(0.0, found.cpu_s - self._last[rank][1]) / seconds
            self._last[rank] = pid, found.cpu_s
            self._most[rank] = max(self._most.get(rank, 0.0), used)
            self._seen[rank] = self._seen.get(rank, 0) + 1
            cores, memory = cores + used, memory + found.memory_bytes
            lines.append(self._line(now, f"rank {rank}", used, found.memory_bytes))
        node = self._node()
        busy, self._node_cpu_s = max(0.0, node.cpu_s - self._node_cpu_s) / seconds, node.cpu_s
        lines.append(self._line(now, "all ranks", cores, memory))
        lines.append(self._line(now, "node", busy, node.memory_bytes, self._meter.watts, temperature_c()))
        for counter in self._meter.counters.found:
            if counter.kind == "nvml":
                state = counter.state()
                values = state.utilisation, state.memory_bytes, counter.watts, state.temperature_c
                lines.append(self._line(now, counter.name, *values))
        return lines

    def _line(self, now: float, what: str, *values: float | None) -> str:
        figures = ["" if value is None else f"{value:.3f}".rstrip("0").rstrip(".") for value in values]
        figures += [""] * (4 - len(figures))
        return f"{now - self._begun:.2f},{what},{','.join(figures)}\n"

    def idle_ranks(self) -> list[int]:
        """Those that did nothing in all samples, while another one worked."""
        if max(self._most.values(), default=0.0) < 10 * IDLE:
            return []
        return [rank for rank, most in self._most.items() if most < IDLE and self._seen[rank] >= LEAST]
