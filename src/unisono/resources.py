"""What this machine offers to this process: cores and memory, with the limits of affinity and cgroups.

    python -c "from unisono import resources; print(resources.usable_cores(), resources.available_bytes())"

A batch system or a container limits a group of processes; groups lie within groups, and each of them counts: so the
limits are looked for from this process's own group up to the root, in version 2 and version 1 hierarchies.
"""

import os
import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import psutil

from unisono.errors import UserError

_CGROUP = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
UNREADABLE = (psutil.Error, OSError, ValueError, LookupError, NotImplementedError)
"""What psutil raises where /proc is missing, in part or as a whole."""


_together = 0
"""Cores of this node's ranks, if a launcher bound each of them to some; see `count_together`."""


def count_together(cores: int) -> None:
    """From now on `usable_cores` counts those that all ranks of this node have together; 0: this process alone."""
    global _together  # noqa: PLW0603 - of this process, like the mask that it stands for
    _together = cores


def usable_cores() -> int:
    """Cores this process may run on, at least 1: affinity mask and CPU quotas, whichever is smallest."""
    cores = float(max(_together, len(os.sched_getaffinity(0))))
    for group in _groups("cpu"):
        quota, _, period = _read(group / "cpu.max").partition(" ")
        quota, period = quota or _read(group / "cpu.cfs_quota_us"), period or _read(group / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit():
            cores = min(cores, int(quota) / int(period))
    return max(1, int(cores))


def memory_bytes() -> int:
    """Of the whole machine."""
    try:
        return int(psutil.virtual_memory().total)
    except UNREADABLE:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _free_bytes() -> int:
    """Of the whole machine; without /proc, what the C library says, which counts caches as used."""
    try:
        return int(psutil.virtual_memory().available)
    except UNREADABLE:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def load_average() -> float | None:
    """Processes that want to run, over the last minute; None where /proc does not tell."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def available_bytes() -> int:
    """Memory that can still be taken without swapping or being killed for it."""
    free = _free_bytes()
    for group in _groups("memory"):
        most = _read(group / "memory.max") or _read(group / "memory.limit_in_bytes")
        used = _read(group / "memory.current") or _read(group / "memory.usage_in_bytes")
        if most.isdigit() and used.isdigit():
            # Pages of files that nobody uses count as used, but are given back when asked for.
            free = min(free, int(most) - int(used) + _inactive_file(group))
    return max(0, free)


def group_task_room() -> int | None:
    """How many processes and threads this process's groups may still start; None: as many as the machine can."""
    rooms = []
    for group in _groups("pids"):
        most, used = _read(group / "pids.max"), _read(group / "pids.current")
        if most.isdigit() and used.isdigit():
            rooms.append(max(0, int(most) - int(used)))
    return min(rooms, default=None)


def check_memory(what: str, nbytes: int, hint: str) -> None:
    """A `UserError` if `what`, a plural, need more memory than is available."""
    if nbytes > (free := available_bytes()):
        needed = readable_bytes(nbytes) if nbytes < 1 << 60 else "more than 1 EiB"
        raise UserError(f"{what} need {needed} of memory, {readable_bytes(free)} are available", hint=hint)


def memory_kills() -> int:
    """How many processes of this process's groups the kernel has killed for memory; grows."""
    kills = 0
    for group in _groups("memory"):
        for line in _read(group / "memory.events").splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                kills += int(value)
    return kills


def pss_bytes() -> int:
    """This process's fair share of memory: pages that n processes share count 1/n. 0 where the kernel does not tell."""
    for line in _read(Path("/proc/self/smaps_rollup")).splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def machine(*libraries: str) -> dict[str, str | int]:
    """What a reader of results wants to know of where they came from. libraries: packages that computed them, besides
    NumPy; what is not installed is left out."""
    models = [
        line.partition(":")[2].strip() for line in _read(Path("/proc/cpuinfo")).splitlines() if "model name" in line
    ]
    return {
        "host": platform.node(),
        "cpu": models[0] if models else platform.machine(),
        "cores": usable_cores(),
        "memory_bytes": memory_bytes(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": metadata.version("numpy"),
        **{name: version for name in libraries if (version := _version(name))},
    }


def _version(package: str) -> str:
    """Of an installed one; empty if it is not."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _groups(controller: str) -> Iterator[Path]:
    """The directories of this process's group and of all above it."""
    for line in _read(_OWN).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top = _CGROUP
        elif controller in controllers.split(","):
            top = _CGROUP / controller
        else:
            continue
        here = Path(path.lstrip("/"))
        yield from (top / parent for parent in [here, *here.parents])


def _inactive_file(group: Path) -> int:
    for line in _read(group / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            return int(value)
    return 0


def readable_bytes(count: float) -> str:
    """1536 -> '1.5 KiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if count == int(count) else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""
