"""BackgroundLoad: how many of our cores programs that are not ours keep busy, measured and said.

The one idea: what the cores gave to anybody, less what our own processes used, both by the kernel's counters; nobody is
asked, and it works beside any run.

    others = BackgroundLoad(); others.cores(); disturbance(1.6, cores=2)

Limits: the counters move in steps of 10 ms, so nothing is told of less than half a second. Under a quota it is not
known who is in whose way. What a hypervisor takes from a virtual machine counts as others'.
"""

import os
import resource
import time
from collections.abc import Callable
from typing import final

from unisono.energy.proc_files import busy_s
from unisono.resources import usable_cores

LEAST_S = 0.5
FELT = 0.25
"""The share of the cores from which on others are worth a word."""
WORDS = "Other programs kept"
"""How the sentence on them begins."""


def cpu_s(*, descendants: bool = True) -> float:
    """Processor time of this process, and of its children that have ended."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN) if descendants else (resource.RUSAGE_SELF,)
    return sum(found.ru_utime + found.ru_stime for found in map(resource.getrusage, whose))


def under_quota() -> bool:
    """Whether a share of the cores is ours, on whichever of them."""
    return usable_cores() < len(os.sched_getaffinity(0))


@final
class BackgroundLoad:
    """Counts from when it is made."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, busy_s: Callable[[], float] = busy_s) -> None:
        self._clock, self._busy_s = clock, busy_s
        self._begun, self._before_s, self._ours_s = clock(), busy_s(), cpu_s()

    def cores(self, ours_s: float | None = None) -> float | None:
        """How many others kept busy since then, on average; None: not known.

        ours_s: what we used meanwhile; None: this process and its children, all of which have ended.
        """
        if under_quota():
            return None
        seconds, busy_s = self._clock() - self._begun, self._busy_s() - self._before_s
        if seconds < LEAST_S:
            return None
        ours_s = cpu_s() - self._ours_s if ours_s is None else ours_s
        return max(0.0, busy_s - ours_s) / seconds


def disturbance(others_cores: float | None, cores: int, where: str = "") -> str:
    """A sentence, if others took more than a quarter of the cores; else nothing."""
    if others_cores is None or not others_cores > FELT * cores:
        return ""
    busy = f"{WORDS} {others_cores:.1f} of the {cores} core{'s' * (cores > 1)}{where} busy meanwhile"
    return f"{busy}, so these timings are unreliable. Repeat it when the machine is quiet."
