"""Made-up counters: a powercap tree in a directory, GPUs that answer like NVML, a clock that is turned by hand."""

from pathlib import Path
from types import SimpleNamespace


class Clock:
    """Seconds, as far as it was turned."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    def turn(self, seconds):
        self.now += seconds


def make_zone(root: Path, folder: str, name: str, energy_uj: int, range_uj: int = 262_143_328_850) -> Path:
    zone = root / folder
    zone.mkdir(parents=True)
    (zone / "name").write_text(f"{name}\n")
    (zone / "max_energy_range_uj").write_text(f"{range_uj}\n")
    set_energy(zone, energy_uj)
    return zone


def set_energy(zone: Path, energy_uj: int) -> None:
    (zone / "energy_uj").write_text(f"{energy_uj}\n")


class FakeNvml:
    """Boards with a power each; those that count have their energy in `energy_mj`."""

    NVML_TEMPERATURE_GPU = 0

    class NVMLError(Exception):
        pass

    def __init__(self, watts, energy_mj=None, driver=True):
        self.watts, self.energy_mj, self.driver = list(watts), energy_mj, driver

    def nvmlInit(self):
        if not self.driver:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self):
        return len(self.watts)

    def nvmlDeviceGetHandleByIndex(self, number):
        if number >= len(self.watts):
            raise self.NVMLError("Invalid Argument")
        return number

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        if self.energy_mj is None:
            raise self.NVMLError("Not Supported")
        return self.energy_mj[handle]

    def nvmlDeviceGetPowerUsage(self, handle):
        return int(1000 * self.watts[handle])

    def nvmlDeviceGetUtilizationRates(self, handle):
        return SimpleNamespace(gpu=97, memory=40)

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(used=7 << 30, total=16 << 30)

    def nvmlDeviceGetTemperature(self, handle, sensor):
        return 71
