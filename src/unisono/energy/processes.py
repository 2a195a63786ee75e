"""What /proc tells of a process, and of how hot the processors are: a few small files, read from outside.

The one idea: nobody who trains is asked. Reading /proc/PID/stat and statm takes microseconds and no lock of theirs
(unlike smaps, which would stop their memory for milliseconds).

    Processes().look(pid); temperature_c()

Limits: memory is the resident set, which counts what ranks share once for each of them.
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


def look(pid: int, proc: Path = PROC) -> Process | None:
    """None if it has ended."""
    try:
        # The name, in brackets, may hold spaces: fields are counted from behind it.
        fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        resident = int((proc / str(pid) / "statm").read_text().split()[1])
        return Process((int(fields[11]) + int(fields[12])) * _TICK_S, resident * _PAGE)
    except (OSError, IndexError, ValueError):
        return None


def temperature_c() -> float | None:
    """Of the hottest processor; None where no sensor tells, as in most virtual machines."""
    try:
        found = psutil.sensors_temperatures()
    except (AttributeError, OSError):
        return None
    values = [entry.current for name in SENSORS for entry in found.get(name, [])]
    return max(values, default=None)
