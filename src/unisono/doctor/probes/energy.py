"""Energy: whether the processor's counters (RAPL) can be read, and whether NVIDIA's GPUs (NVML) tell theirs.

The one idea: the counters are found by the code that a run uses, so what is ok here is what a run will have.

Limits: says whether they are there; nothing is measured.
"""

import ctypes
from pathlib import Path

from unisono.doctor.finding import Finding
from unisono.energy.nvml import HOW, find_gpus
from unisono.energy.rapl import find_zones

POWERCAP = Path("/sys/class/powercap")


def probe() -> list[Finding]:
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
    """Of NVIDIA's driver."""
    try:
        loaded = ctypes.CDLL(library)
    except OSError:
        return Finding("energy: NVML", "missing", "no NVIDIA driver here; only GPUs need it")
    count = ctypes.c_uint(0)
    failed = loaded.nvmlInit_v2() or loaded.nvmlDeviceGetCount_v2(ctypes.byref(count))
    if failed:
        told = f"NVIDIA's library is there, and answers with error {failed}"
        return Finding("energy: NVML", "warning", told, "does `nvidia-smi` work? load or mend the driver")
    gpus, missing = find_gpus(None)
    facts = {"gpus": count.value, "told": [gpu.name for gpu in gpus]}
    if missing:
        told = f"{count.value} GPUs, whose energy a run could not tell: {missing}"
        return Finding("energy: NVML", "warning", told, HOW, facts)
    return Finding("energy: NVML", "ok", f"{len(gpus)} GPUs", facts=facts)
