"""Whether a cluster has nodes such as a job asks for: SLURM may queue a job that can never start, and say nothing.

The one idea: `sinfo` lists the kinds of nodes of each partition, busy and idle ones alike; enough of them must be large
enough.

    check_room(WantedNodes(partition="", nodes=2, cores=4, memory_mb=800))

A line that is not understood proves nothing: its partition may have room, and that it was not understood is said.

Limits: features, licences and limits of users are not looked at; a job that lacks those waits, and tells its reason.
"""

import math
import re
from dataclasses import dataclass
from typing import final

from unisono.errors import UserError
from unisono.launch.slurm.client import call, not_understood

_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
_MB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}


@final
@dataclass(frozen=True)
class WantedNodes:
    """What a job asks for."""

    partition: str
    """Or several, with commas; empty: the cluster's default."""
    nodes: int
    cores: int
    """On each node."""
    memory_mb: float
    """On each node."""


@final
@dataclass(frozen=True)
class _Kind:
    """Nodes that are alike."""

    count: int
    cores: int
    memory_mb: int

    def __str__(self) -> str:
        return f"{self.count} nodes of {self.cores} cores and {self.memory_mb} MB"


def check_room(wanted: WantedNodes) -> str:
    """A `UserError` with what there is if no partition has such nodes. What to say of an answer that is not clear."""
    told = call(["sinfo", "--noheader", "--exact", "--format=%P|%D|%c|%m"])
    partitions: dict[str, list[_Kind | None]] = {}
    strange = [line for line in told.split("\n") if line.strip() and not _read_line(line, partitions)]
    # A * marks the default.
    named = {name.rstrip("*"): kinds for name, kinds in partitions.items()}
    names = [name for name in wanted.partition.split(",") if name]
    names = names or [name.rstrip("*") for name in partitions if name.endswith("*")]
    unknown = [name for name in names if name not in named]
    if unknown and named and not strange:
        raise UserError(f"there is no partition {unknown[0]}", hint=f"choose one of {', '.join(sorted(named))}")
    if names and not unknown and not any(_fits(wanted, named[name]) for name in names):
        found = [f"{name} has {'; '.join(map(str, named[name]))}" for name in names]
        raise UserError(
            f"the job needs {wanted.nodes} node{'s' * (wanted.nodes > 1)} of {wanted.cores} cores and "
            f"{wanted.memory_mb:.0f} MB, and would wait for ever: {', '.join(found)}",
            hint="fewer --ranks-per-node or --threads, less --mem, or another --partition",
        )
    if strange or unknown or any(None in kinds for kinds in named.values()):
        return f"{not_understood('sinfo', told)}; whether the cluster has such nodes is not known"
    return ""


def _read_line(line: str, partitions: dict[str, list[_Kind | None]]) -> bool:
    """Adds a line of sinfo; False if it names no partition. None in the place of numbers that are none."""
    name, *fields = line.strip().split("|")
    if not fields or not re.fullmatch(r"[^\s\ufffd|]+", name):
        return False
    numbers = [_number(field) for field in fields[:3]]
    count, cores, memory = numbers if len(numbers) == 3 else (None, None, None)
    known = count is not None and cores is not None and memory is not None
    partitions.setdefault(name, []).append(_Kind(count, cores, memory) if known else None)  # type: ignore[arg-type]
    return True


def _number(text: str) -> int | None:
    """12, 8+ (the least of several), 1.5K; None: UNLIMITED, n/a and the like."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,3})?)([KMGT]?)\+?", text.strip(), re.ASCII)
    return math.ceil(float(match[1]) * _UNITS[match[2]]) if match else None


def _fits(wanted: WantedNodes, kinds: list[_Kind | None]) -> bool:
    """Whether there may be enough of them."""
    known = [kind for kind in kinds if kind is not None]
    if len(known) < len(kinds):
        return True
    large = [kind.count for kind in known if kind.cores >= wanted.cores and kind.memory_mb >= wanted.memory_mb]
    return sum(large) >= wanted.nodes


def megabytes(size: str) -> float:
    """SLURM's way to write a size: megabytes without a unit.

    >>> megabytes("4G"), megabytes("800")
    (4096, 800)
    """
    match = re.fullmatch(r"(\d{1,15})([KMGT]?)", size.upper(), re.ASCII)
    return int(match[1]) * _MB[match[2] or "M"] if match else 0
