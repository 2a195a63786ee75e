"""What this machine offers to this process: cores and memory, with the limits of affinity and cgroups.

    python -c "from unisono import resources; print(resources.usable_cores(), resources.available_bytes())"

Limits: reads version 2 cgroups, and version 1 where they are mounted at the usual place; a limit set further up in
the hierarchy than this process's own group is seen only if the container shows it as its root.
"""

import os
from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Cores this process may run on, at least 1: affinity mask and CPU quota, whichever is smaller."""
    cores = len(os.sched_getaffinity(0))
    quota, _, period = _read(_CGROUP / "cpu.max").partition(" ")
    if quota.isdigit() and period.strip().isdigit():
        cores = min(cores, int(quota) // int(period))
    return max(1, cores)


def available_bytes() -> int:
    """Memory that can still be taken without swapping or being killed for it."""
    free = int(psutil.virtual_memory().available)
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        most, now = _read(_CGROUP / limit), _read(_CGROUP / used)
        if most.isdigit() and now.isdigit():
            free = min(free, int(most) - int(now))
    return max(0, free)


def readable_bytes(count: float) -> str:
    """1536 -> '1.5 KiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if count == int(count) else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
