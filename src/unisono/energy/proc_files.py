"""What /proc tells of a process, of the whole node, and of how hot it is: a few small files, read from outside.

The one idea: nobody who trains is asked. Reading /proc/PID/stat and statm takes microseconds and no lock of theirs
(unlike smaps, which would stop their memory for milliseconds).

    read_process(pid); read_node(); temperature_c()

Limits: memory of a process is the resident set, which counts what ranks share once for each of them.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import final

import psutil

PROC = Path("/proc")
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")


@final
@dataclass(frozen=True)
class Process:
    """At one moment."""

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
    """Processor time that the cores that we may use gave to anybody, or were kept from giving by a hypervisor."""
    every, allowed = psutil.cpu_times(percpu=True), os.sched_getaffinity(0)
    spent = [core for number, core in enumerate(every) if number in allowed]
    # The first eight: guests are part of user time already.
    return float(sum(sum(core[:8]) - core.idle - core.iowait for core in spent))


def read_node() -> Process:
    """All programs on the cores that we may use; memory that is in use on the whole machine."""
    memory = psutil.virtual_memory()
    return Process(busy_s(), int(memory.total - memory.available))


def temperature_c() -> float | None:
    """Of the hottest processor; None where no sensor tells, as in most virtual machines."""
    try:
        found = psutil.sensors_temperatures()
    except (AttributeError, OSError):
        return None
    values = [entry.current for name in SENSORS for entry in found.get(name, [])]
    return max(values, default=None)
