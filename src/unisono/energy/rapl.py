"""RAPL: the energy counters of Intel's and AMD's processors, as files under /sys/class/powercap.

The one idea: a zone is a directory whose energy_uj grows until max_energy_range_uj and then starts again at zero. What
counts are the packages and their dram, which no package includes; cores and uncores are inside a package, and psys, the
whole platform, would count everything twice.

    zones, missing = find_zones(); zones[0].follow(time.monotonic())

Limits: the counters are those of the whole node, other programs included. Since 2020 (CVE-2020-8694) most systems let
root alone read them: then `missing` says so.
"""

import re
from pathlib import Path
from typing import final

from unisono.energy.counters import Counter

POWERCAP = Path("/sys/class/powercap")
_ZONE = re.compile(r"intel-rapl:\d+(:\d+)?")


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
