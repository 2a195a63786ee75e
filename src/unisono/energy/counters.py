"""Energy counters of a machine: RAPL of Intel's and AMD's processors, NVML of NVIDIA's GPUs (extra `energy`).

    zones, missing = find_zones(); gpus, missing = find_gpus([0, 1])
    counter.follow(now); counter.joules; counter.watts

The one idea: energy is the difference between two readings. A process that reads often enough (`follow`) never misses a
counter that starts again at zero, and also gets the power of every interval.

RAPL: a zone is a directory under /sys/class/powercap whose energy_uj grows until max_energy_range_uj and then starts
again at zero. The packages count, and their dram, which no package includes; cores and uncores are inside a package,
and psys, the whole platform, would count everything twice. NVML: GPUs since Volta count their energy; older ones show
only their present power, which is multiplied by the time since the last reading.

Limits: a counter that wraps twice between two readings loses the first turn. RAPL counts the whole machine, other
programs included; since 2020 (CVE-2020-8694) most systems let only root read it, and `missing` says so. The numbers of
GPUs are NVML's, in the order of the PCI bus.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, final

from unisono.optional_packages import how_to_install

POWERCAP = Path("/sys/class/powercap")
_ZONE = re.compile(r"intel-rapl:\d+(:\d+)?")
NVML = "pynvml"
NVML_INSTALL = how_to_install("energy")


@final
@dataclass(frozen=True)
class State:
    """What a device shows apart from energy; None: it does not show it."""

    utilisation: float | None = None
    """0 to 1."""
    memory_bytes: int | None = None
    temperature_c: float | None = None


class Counter(ABC):
    """Follows one part of a node: a processor's package, a GPU."""

    name: str
    """package-0, gpu 0."""
    kind: str
    """rapl or nvml."""
    joules: float = 0.0
    """Used since the first `follow`."""
    watts: float | None = None
    """The mean power between the last two; None before."""
    _then: float | None = None

    def follow(self, now: float) -> None:
        """Reads it; `now` is in seconds of any clock that does not go back."""
        if self._then is None:
            self._used(None, now)
        elif (seconds := now - self._then) > 0:
            used = self._used(seconds, now)
            self.joules += used
            self.watts = used / seconds
        self._then = now

    @abstractmethod
    def _used(self, seconds: float | None, now: float) -> float:
        """Joules since the last call, `seconds` ago; None: the first."""

    def state(self) -> State:
        """The state of the device, as far as it shows it."""
        return State()


@final
class Zone(Counter):
    """One counter; `OSError` or `ValueError` if it cannot be read."""

    kind = "rapl"

    def __init__(self, path: Path, name: str) -> None:
        self.name, self._path = name, path / "energy_uj"
        self._range_uj = int((path / "max_energy_range_uj").read_text("ascii"))
        self._last_uj = self._read()

    def _read(self) -> int:
        return int(self._path.read_text("ascii"))

    def _used(self, seconds: float | None, now: float) -> float:
        try:
            found = self._read()
        except (OSError, ValueError):
            return 0.0  # gone in the middle of a run: what was counted stays
        used = found - self._last_uj
        self._last_uj = found
        return (used + self._range_uj if used < 0 else used) / 1e6


def find_zones(root: Path = POWERCAP) -> tuple[list[Counter], str]:
    """(the zones that count, why there are none, or not all)."""
    zones: list[Counter] = []
    refused = 0
    try:
        folders = sorted(folder for folder in root.iterdir() if _ZONE.fullmatch(folder.name))
    except OSError:
        folders = []
    for folder in folders:
        try:
            name = (folder / "name").read_text("utf-8", "replace").strip()
            inside = folder.name.count(":") > 1
            if name == "psys" or (inside and name != "dram"):
                continue
            # A node with two packages has two zones named dram.
            package = folder.name.split(":")[1]
            zones.append(Zone(folder, f"dram-{package}" if inside else name))
        except PermissionError:
            refused += 1
        except (OSError, ValueError):
            continue
    if zones:
        every = len(zones) + refused
        return zones, f"only {len(zones)} of {every} counters of the processors may be read" if refused else ""
    return [], f"{root} is readable by root only" if refused else "this machine shows no energy counters"


@final
class Gpu(Counter):
    """The GPU of that number; `nvml` is the package, or something that answers like it."""

    kind = "nvml"

    def __init__(self, nvml: Any, number: int) -> None:
        self.name, self._nvml = f"gpu {number}", nvml
        self._handle = nvml.nvmlDeviceGetHandleByIndex(number)
        self._last_mj: int | None = None
        self._last_w = 0.0
        try:
            self._last_mj = nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)
        except nvml.NVMLError:
            self._power()  # one that tells neither is of no use

    def _power(self) -> float:
        return float(self._nvml.nvmlDeviceGetPowerUsage(self._handle)) / 1e3

    def _used(self, seconds: float | None, now: float) -> float:
        try:
            if self._last_mj is not None:
                found = self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)
                used = (found - self._last_mj) / 1e3
                self._last_mj = found
                return float(used)
            before, self._last_w = self._last_w, self._power()
        except self._nvml.NVMLError:
            return 0.0
        return 0.0 if seconds is None else seconds * (before + self._last_w) / 2

    def state(self) -> State:
        nvml, handle = self._nvml, self._handle
        try:
            return State(
                nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
                int(nvml.nvmlDeviceGetMemoryInfo(handle).used),
                float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            )
        except nvml.NVMLError:
            return State()


def find_gpus(numbers: Iterable[int] | None, nvml: Any = None) -> tuple[list[Counter], str]:
    """(those GPUs, or all if None; why they cannot be asked)."""
    if nvml is None and find_spec(NVML) is None:
        return [], f"GPUs are asked through nvidia-ml-py, which is not installed ({NVML_INSTALL})"
    nvml = import_module(NVML) if nvml is None else nvml
    try:
        nvml.nvmlInit()
        wanted = range(nvml.nvmlDeviceGetCount()) if numbers is None else numbers
        return [Gpu(nvml, number) for number in wanted], ""
    except nvml.NVMLError as error:
        return [], f"the GPUs do not tell their energy: {error}"
