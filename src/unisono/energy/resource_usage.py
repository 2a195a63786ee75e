"""What processes and the machine use: processor time, memory, temperature; how many cores other programs keep busy.

    read_process(pid); read_node(); temperature_c()
    others = BackgroundLoad(); others.cores(); disturbance(1.6, cores=2)

The one idea: the kernel's counters are read from outside, so training is not disturbed. Reading /proc/PID/stat and
statm takes microseconds and no lock of the process (unlike smaps, which would stop its memory for milliseconds). The
load of others is what the cores did in all, less what our own processes used.

Limits: the memory of a process is its resident set, which counts what ranks share once for each of them. The counters
move in steps of 10 ms, so no load is given for less than half a second, nor under a quota of processor time. Time that
a hypervisor takes from a virtual machine counts as others'.
"""

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

import psutil

from unisono.resources import usable_cores

PROC = Path("/proc")
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
LEAST_S = 0.5
FELT = 0.25
"""The share of the cores from which on the load of others is reported."""
WORDS = "Other programs kept"
"""How the sentence on them begins."""


@final
@dataclass(frozen=True)
class Process:
    """What a process has used at one moment."""

    cpu_s: float
    memory_bytes: int


def read_process(pid: int, proc: Path = PROC) -> Process | None:
    """None if it has ended."""
    try:
        # The name, in brackets, may hold spaces: fields are counted from behind it.
        fields = (proc / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        resident = int((proc / str(pid) / "statm").read_text("ascii").split()[1])
        return Process((int(fields[11]) + int(fields[12])) * _TICK_S, resident * _PAGE)
    except (OSError, IndexError, ValueError):
        return None


def busy_s() -> float:
    """Time that all programs used of the cores that we may use, and that a hypervisor took from them."""
    every, allowed = psutil.cpu_times(percpu=True), os.sched_getaffinity(0)
    spent = [core for number, core in enumerate(every) if number in allowed]
    # The first eight: guests are part of user time already.
    return float(sum(sum(core[:8]) - core.idle - core.iowait for core in spent))


def read_node() -> Process:
    """All programs on the cores that we may use; memory that is in use on the whole machine."""
    memory = psutil.virtual_memory()
    return Process(busy_s(), int(memory.total - memory.available))


def temperature_c() -> float | None:
    """The temperature of the hottest processor; None without a sensor, as in most virtual machines."""
    try:
        found = psutil.sensors_temperatures()
    except (AttributeError, OSError):
        return None
    values = [entry.current for name in SENSORS for entry in found.get(name, [])]
    return max(values, default=None)


def cpu_s(*, descendants: bool = True) -> float:
    """Processor time of this process, and of its children that have ended."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN) if descendants else (resource.RUSAGE_SELF,)
    return sum(found.ru_utime + found.ru_stime for found in map(resource.getrusage, whose))


def under_quota() -> bool:
    """Whether a quota gives us a share of the cores instead of some of them."""
    return usable_cores() < len(os.sched_getaffinity(0))


@final
class BackgroundLoad:
    """Counts from when it is made."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, busy_s: Callable[[], float] = busy_s) -> None:
        self._clock, self._busy_s = clock, busy_s
        self._begun, self._before_s, self._ours_s = clock(), busy_s(), cpu_s()

    def cores(self, ours_s: float | None = None) -> float | None:
        """How many cores others kept busy since then, on average; None: not known.

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
