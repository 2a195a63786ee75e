"""NVML: what NVIDIA's GPUs tell of their energy, use and temperature, through nvidia-ml-py (extra `energy`).

The one idea: GPUs since Volta count their energy; of older ones only the power of the moment is known, which is
multiplied by the time since the last reading (watts times seconds).

    gpus, missing = find_gpus([0, 1])

Limits: power between two readings is taken for the mean of both. Numbers are NVML's, in the order of the PCI bus.
"""

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, final

from unisono.energy.counters import Counter, State
from unisono.user_code.extras import how_to_install

PACKAGE = "pynvml"
HOW = how_to_install("energy")


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
    if nvml is None and find_spec(PACKAGE) is None:
        return [], f"GPUs are asked through nvidia-ml-py, which is not installed ({HOW})"
    nvml = import_module(PACKAGE) if nvml is None else nvml
    try:
        nvml.nvmlInit()
        wanted = range(nvml.nvmlDeviceGetCount()) if numbers is None else numbers
        return [Gpu(nvml, number) for number in wanted], ""
    except nvml.NVMLError as error:
        return [], f"the GPUs do not tell their energy: {error}"
