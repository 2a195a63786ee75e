"""Others: how many of our cores other programs kept busy while something of ours ran.

    others = Others(); ...; others.cores()        # 0.4, or None where nobody can tell

The one idea: what cores did, less what this process and its children did, is what others did; time that a virtual
machine was kept from its cores (steal) is theirs too. Asked for after our children have ended, for only then are their
times known.

Limits: under a quota it cannot be told who is in whose way. Children of children count as others if nobody waited for
them.
"""

import os
import resource
import time
from typing import final

import psutil

from unisono.resources import usable_cores


@final
class Others:
    """From when it is made."""

    def __init__(self) -> None:
        self._begun, self._used_s = time.perf_counter(), _cpu_s_of_others()

    def cores(self) -> float | None:
        """Busy with others since then, on average; None: not known."""
        if _under_quota():
            return None
        return max(0.0, _cpu_s_of_others() - self._used_s) / max(1e-9, time.perf_counter() - self._begun)


def _under_quota() -> bool:
    """Whether a share of the cores is ours, on whichever of them."""
    return usable_cores() < len(os.sched_getaffinity(0))


def _cpu_s_of_others() -> float:
    """Processor time that the cores that we may use gave, or were kept from giving, to others than our children that
    have ended."""
    every, allowed = psutil.cpu_times(percpu=True), os.sched_getaffinity(0)
    spent = [core for number, core in enumerate(every) if number in allowed]
    idle_s = sum(core.idle + core.iowait for core in spent)
    ours = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = resource.getrusage(resource.RUSAGE_SELF)
    return float(
        sum(sum(core[:8]) for core in spent) - idle_s - ours.ru_utime - ours.ru_stime - own.ru_utime - own.ru_stime
    )
