"""Whether a cluster has nodes such as a job asks for: SLURM may queue a job that can never start, and say nothing.

The one idea: `sinfo` lists the kinds of nodes of each partition, busy and idle ones alike; enough of them must be large
enough.

    check_room(Wanted(partition="", nodes=2, cores=4, memory_mb=800))

Limits: features, licences and limits of users are not looked at; a job that lacks those waits, and tells its reason.
"""

import re
from dataclasses import dataclass
from typing import final

from unisono.errors import UserError
from unisono.launch.slurm.client import call

_MB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}


@final
@dataclass(frozen=True)
class Wanted:
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


def check_room(wanted: Wanted) -> None:
    """A `UserError` with what there is if no partition has such nodes."""
    kinds = [line.split("|") for line in call(["sinfo", "--noheader", "--exact", "--format=%P|%D|%c|%m"]).splitlines()]
    partitions: dict[str, list[_Kind]] = {}
    for name, count, cores, memory in kinds:
        # A * marks the default; a + follows the least of several numbers.
        one = _Kind(int(count), int(cores.rstrip("+")), int(memory.rstrip("+")))
        partitions.setdefault(name.rstrip("*"), []).append(one)
    defaults = dict.fromkeys(name.rstrip("*") for name, *_ in kinds if name.endswith("*"))
    names = [name for name in wanted.partition.split(",") if name] or list(defaults)
    if unknown := [name for name in names if name not in partitions]:
        raise UserError(f"there is no partition {unknown[0]}", hint=f"choose one of {', '.join(sorted(partitions))}")
    if names and not any(_fits(wanted, partitions[name]) for name in names):
        found = [f"{name} has {'; '.join(map(str, partitions[name]))}" for name in names]
        raise UserError(
            f"the job needs {wanted.nodes} node{'s' * (wanted.nodes > 1)} of {wanted.cores} cores and "
            f"{wanted.memory_mb:.0f} MB, and would wait for ever: {', '.join(found)}",
            hint="fewer --ranks-per-node or --threads, less --mem, or another --partition",
        )


def _fits(wanted: Wanted, kinds: list[_Kind]) -> bool:
    large = [kind.count for kind in kinds if kind.cores >= wanted.cores and kind.memory_mb >= wanted.memory_mb]
    return sum(large) >= wanted.nodes


def megabytes(size: str) -> float:
    """SLURM's way to write a size: megabytes without a unit.

    >>> megabytes("4G"), megabytes("800")
    (4096, 800)
    """
    match = re.fullmatch(r"(\d+)([KMGT]?)", size.upper())
    return int(match[1]) * _MB[match[2] or "M"] if match else 0
