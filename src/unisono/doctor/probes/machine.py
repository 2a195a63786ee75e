"""The machine as this process may use it: cores (affinity, quotas, load), memory, /dev/shm, disk, energy counters.

    python -m unisono.doctor.probe_entry machine
    python -m unisono.doctor.probe_entry energy

The energy counters (RAPL of processors, NVML of GPUs) are looked for by the code that a run uses, so what is ok here is
what a run will have.

Limits: the probes say whether counters are there; they measure no energy.
"""

import ctypes
import os
import platform
import shutil
import sys
from pathlib import Path

from unisono import __version__
from unisono.doctor.finding import Finding
from unisono.energy.counters import NVML_INSTALL, POWERCAP, find_gpus, find_zones
from unisono.resources import (
    available_bytes,
    load_average,
    machine,
    memory_bytes,
    memory_kills,
    readable_bytes,
    usable_cores,
)

GIB = 1 << 30
LITTLE_BYTES = GIB // 2
"""A rank with torch takes 0.2 to 0.5 GiB."""
SHM_BYTES = 256 << 20
"""Open MPI and torch's data loaders want some; containers give 64 MiB."""
KERNEL_FILES = {
    "/proc/self/stat": "processes", "/proc/meminfo": "memory", "/proc/self/cgroup": "limits of the group",
    "/proc/cpuinfo": "abilities of the processor", "/sys/devices/system/cpu": "its caches",
}  # fmt: skip


def probe_machine() -> list[Finding]:
    """Software, files of the kernel, cores, memory and disk."""
    python = f"unisono {__version__}, Python {platform.python_version()}, {machine()['system']}"
    facts = {"unisono": __version__, "python": sys.version, "prefix": sys.prefix, "libc": " ".join(platform.libc_ver())}
    here = Finding("software", "ok", python, facts=facts)
    allowed = len(os.sched_getaffinity(0))
    found = cores(os.cpu_count() or 1, allowed, usable_cores(), load_average())
    return [here, *kernel_files(), *found, memory(), shm(), disk()]


def kernel_files() -> list[Finding]:
    """What the kernel tells in files, of which containers may hide some; nothing to say where all is there."""
    lacking = {path: what for path, what in KERNEL_FILES.items() if not os.access(path, os.R_OK)}
    if not lacking:
        return []
    told = f"{', '.join(lacking)} cannot be read: {', '.join(lacking.values())} are guessed, or not known"
    fix = "mount /proc and /sys: trainings need them"
    return [Finding("kernel files", "warning", told, fix, {"lacking": [*lacking]})]


def cores(there: int, allowed: int, usable: int, load: float | None) -> list[Finding]:
    """there: of the machine; allowed: by the affinity mask; usable: within quotas, too; load: who waits for them, if
    that is known."""
    facts = {"there": there, "affinity": allowed, "usable": usable, "load": None if load is None else round(load, 2)}
    told = f"{usable} of {there} usable" if usable < there else f"{there}, all usable"
    if allowed < there:
        told += f"; the affinity mask leaves {allowed} (taskset, or the batch system)"
    if usable < allowed:
        told += f"; a quota of the group leaves {usable} (container, or the batch system)"
    fix = "ask for more: --cpus-per-task for SLURM, --cpus for docker" if usable < there else ""
    if usable == 1:
        told += ": more ranks will not be faster"
        found = [Finding("cores", "warning", told, fix or "nothing is wrong, but speed needs a second core", facts)]
    else:
        found = [Finding("cores", "ok", told, facts=facts)]
    if load is not None and load > there:
        told = f"{load:.1f} processes want the {there} cores: times measured now say little"
        found.append(Finding("load", "warning", told, "look with `top` who they are, or measure later", {"load": load}))
    return found


def memory() -> Finding:
    """What can be taken, with the limits of the group."""
    total, free, kills = memory_bytes(), available_bytes(), memory_kills()
    facts = {"total_bytes": total, "available_bytes": free, "kills": kills}
    told = f"{readable_bytes(free)} of {readable_bytes(total)} available"
    if kills:
        told += f"; the kernel has killed {kills} processes of this group for memory so far"
    if free < LITTLE_BYTES:
        return Finding("memory", "warning", told, "ask for more: --mem for SLURM, --memory for docker", facts)
    return Finding("memory", "ok", told, facts=facts)


def shm(path: str = "/dev/shm") -> Finding:
    """unisono's own memory has no name and is not bound by it."""
    try:
        size = shutil.disk_usage(path)
    except OSError:
        told = f"there is no {path}; unisono does without it, Open MPI and torch's data loaders do not"
        return Finding(path, "warning", told, f"mount it: mount -t tmpfs tmpfs {path}")
    told = f"{readable_bytes(size.free)} of {readable_bytes(size.total)} free"
    facts = {"total_bytes": size.total, "free_bytes": size.free}
    if size.free < SHM_BYTES:
        told += "; unisono does without it, but Open MPI and torch's data loaders want more"
        return Finding(path, "warning", told, "docker run --shm-size=1g, or remove what others left in it", facts)
    return Finding(path, "ok", told, facts=facts)


def disk() -> Finding:
    """Where runs/ would be made."""
    try:
        size = shutil.disk_usage(".")
    except OSError as error:
        return Finding("disk", "warning", f"this directory: {error.strerror}", "go to one that is there")
    told = f"{readable_bytes(size.free)} free in this directory"
    facts = {"free_bytes": size.free, "writable": os.access(".", os.W_OK)}
    if not facts["writable"]:
        return Finding("disk", "warning", "this directory cannot be written to", "give --out, or go elsewhere", facts)
    if size.free < GIB:
        return Finding("disk", "warning", told, "make room, or give --out on another disk", facts)
    return Finding("disk", "ok", told, facts=facts)


def probe_energy() -> list[Finding]:
    """Neither is needed to train."""
    return [rapl(POWERCAP), nvml("libnvidia-ml.so.1")]


def rapl(folder: Path) -> Finding:
    """The counters that a run would add up, which most kernels let only root read."""
    zones, missing = find_zones(folder)
    facts = {"counters": [zone.name for zone in zones]}
    if zones and not missing:
        return Finding("energy: RAPL", "ok", f"{', '.join(facts['counters'])}: readable", facts=facts)
    if any(folder.glob("intel-rapl:*/energy_uj")):
        told = missing if zones or "root" in missing else "there are counters, but none that can be read"
        return Finding("energy: RAPL", "warning", told, f"as root: chmod a+r {folder}/intel-rapl:*/energy_uj", facts)
    told = "no counters: a virtual machine, or a processor or kernel without RAPL"
    return Finding("energy: RAPL", "missing", told, "on a machine of your own: modprobe intel_rapl_msr")


def nvml(library: str) -> Finding:
    """Whether NVIDIA's driver answers, and whether a run could read the energy of the GPUs."""
    try:
        loaded = ctypes.CDLL(library)
    except OSError:
        return Finding("energy: NVML", "missing", "no NVIDIA driver here; only GPUs need it")
    count = ctypes.c_uint(0)
    failed = loaded.nvmlInit_v2() or loaded.nvmlDeviceGetCount_v2(ctypes.byref(count))
    if failed:
        told = f"NVIDIA's library is there, and answers with error {failed}"
        return Finding("energy: NVML", "warning", told, "does `nvidia-smi` work? load or repair the driver")
    gpus, missing = find_gpus(None)
    facts = {"gpus": count.value, "told": [gpu.name for gpu in gpus]}
    if missing:
        told = f"{count.value} GPUs, whose energy a run could not tell: {missing}"
        return Finding("energy: NVML", "warning", told, NVML_INSTALL, facts)
    return Finding("energy: NVML", "ok", f"{len(gpus)} GPUs", facts=facts)
