"""Energy: whether the processor's counters (RAPL) can be read, and whether NVIDIA's library (NVML) is there.

Limits: says whether they are there; nothing is measured.
"""

import ctypes
from pathlib import Path

from unisono.doctor.finding import Finding

POWERCAP = Path("/sys/class/powercap")


def probe() -> list[Finding]:
    """Neither is needed to train."""
    return [rapl(POWERCAP), nvml("libnvidia-ml.so.1")]


def rapl(folder: Path) -> Finding:
    """The kernel's counters of energy, which it lets only root read."""
    counters = sorted(folder.glob("*rapl*/energy_uj"))
    if not counters:
        told = "no counters: a virtual machine, or a processor or kernel without RAPL"
        return Finding("energy: RAPL", "missing", told, "on a machine of your own: modprobe intel_rapl_msr")
    facts = {"counters": [str(path) for path in counters]}
    try:
        for path in counters:
            int(path.read_text())
    except (OSError, ValueError) as error:
        told = f"{len(counters)} counters, which may not be read: {error}"
        return Finding("energy: RAPL", "warning", told, f"as root: chmod a+r {folder}/*rapl*/energy_uj", facts)
    return Finding("energy: RAPL", "ok", f"{len(counters)} counters, readable", facts=facts)


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
    return Finding("energy: NVML", "ok", f"{count.value} GPUs", facts={"gpus": count.value})
