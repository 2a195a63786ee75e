"""EnergyMonitor: energy and utilisation of a run, kept in its directory: energy.json and utilisation.csv.

The one idea: one process of each node watches, whoever writes the run directory among them; it looks at counters and at
/proc now and then, between other things, and starts no thread.

    watch = EnergyMonitor(path, devices=["cpu"], watts_per_core=8.0); watch.tick({0: pid}); watch.facts(samples)

Limits: utilisation is that of this node and of its ranks. Energy of a resumed run counts from where it went on; its
utilisation goes on, without the time in between. What cannot be written is left out: it is not worth stopping for.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, final
from zlib import crc32

import numpy as np

from unisono.comm.base import Communicator
from unisono.energy.meter import Meter, Reading, find_counters, sum_readings
from unisono.energy.resource_usage import BackgroundLoad, cpu_s
from unisono.energy.utilisation_sampler import EVERY_S, HEADER, Sampler
from unisono.environment.os_environ import visible_gpus
from unisono.files import append_file, open_file, write_all, write_file

NOTE_BYTES = 256
"""Of a node's note, as much as travels."""
KINDS = ("none", "estimate", "rapl", "nvml", "rapl+nvml")


def meter_of(devices: Sequence[str], watts_per_core: float) -> Meter:
    """Of this node; GPUs count if ranks compute on them."""
    used = any(device.startswith("cuda") for device in devices)
    return Meter(find_counters(visible_gpus() if used else ()), watts_per_core)


def last_sample_s(path: Path) -> float:
    """When the last sample of a file was taken; 0 if there is none, or none that can be read."""
    with suppress(OSError, ValueError), open_file(path, follow_links=False) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
        lines = file.read(4096).split(b"\n")
        last = float(lines[-2].partition(b",")[0]) if len(lines) > 1 else 0.0
        return last if 0.0 <= last < inf else 0.0
    return 0.0


@final
class EnergyMonitor:
    """Of one run, by the process that writes its directory."""

    def __init__(self, path: Path, devices: Sequence[str], watts_per_core: float) -> None:
        self._path, self._new = path, not (path / "utilisation.csv").exists()
        self.meter = meter_of(devices, watts_per_core)
        self._sampler = Sampler(self.meter, self._write, before_s=last_sample_s(path / "utilisation.csv"))
        self._cpu_s, self._others = cpu_s(), BackgroundLoad()
        self._pids: dict[int, int] = {}
        self._nodes: list[Reading] = []
        self._others_cores: float | None = None
        self.unknown = ""
        """Why the energy of the whole run cannot be told, if it cannot: a part of it would be taken for all."""

    def _write(self, text: str) -> None:
        with suppress(OSError), append_file(self._path / "utilisation.csv") as file:
            write_all(file, (text if file.tell() else HEADER + text).encode())

    def see(self, rank: int, pid: int) -> None:
        """A rank of this node has that process now."""
        self._pids[rank] = pid

    def tick(self, pids: Mapping[int, int] | None = None) -> None:
        """As often as one likes; pids: the ranks' processes, where they are known; else those that were told last."""
        if pids is not None:
            self._pids = dict(pids)
        self._sampler.tick(self._pids)

    def discard(self) -> None:
        """Nothing of it is to be kept, but for what was there before."""
        if self._new:
            (self._path / "utilisation.csv").unlink(missing_ok=True)

    def set_node_readings(self, nodes: Sequence[Reading], others_cores: float | None = None) -> None:
        """The run was on several nodes, which were read by others, or its ranks are no children of this process.
        others_cores: what programs that are not ours kept busy on this node; None: not known."""
        self._nodes, self._others_cores = list(nodes), others_cores

    def others_cores(self) -> float | None:
        """How many cores of this node others kept busy, on average; None: not known. To be asked after all ranks."""
        return self._others_cores if self._nodes else self._others.cores(cpu_s() - self._cpu_s)

    def facts(self, samples: int) -> dict[str, Any]:
        """For the summary. To be asked when all ranks have ended."""
        found = sum_readings(self._nodes or [self.meter.read(cpu_s() - self._cpu_s)])
        if self.unknown:
            found = Reading(None, "none", found.seconds, note=self.unknown)
        idle = {"idle_ranks": self._sampler.idle_ranks()}
        if not (self._path / "utilisation.csv").exists():
            self._write("")  # the run was too short for a sample
        with suppress(OSError):
            more = {"samples": samples, "seconds": found.seconds, "idle_w": found.idle_w, "parts": found.parts}
            told = found.facts(samples) | more | idle
            write_file(self._path / "energy.json", json.dumps(told, indent=1) + "\n", durable=False)
        return found.facts(samples) | idle


@final
class NodeEnergy:
    """Energy of ranks that another launcher started, on one node or several: one rank of each node reads it."""

    def __init__(self, comm: Communicator, nodes: Sequence[int], devices: Sequence[str], watts_per_core: float) -> None:
        """nodes: which one each rank is on."""
        self._comm, self._nodes, self._watts = comm, nodes, watts_per_core
        first = nodes.index(nodes[comm.rank]) == comm.rank
        self._meter = meter_of(devices, watts_per_core) if first else None
        self._due = 0.0
        self._cpu_s, self._others = cpu_s(descendants=False), BackgroundLoad()
        self.others_cores: float | None = None
        """What programs that are not ours kept busy on this node, once it is gathered; None: not known."""

    def tick(self) -> None:
        """As often as one likes: counters must not wrap unseen."""
        if self._meter is not None and (now := time.monotonic()) > self._due:
            self._due = now + EVERY_S
            self._meter.follow()

    def gather(self) -> list[Reading]:
        """A reading for each node; called by every rank, at the end."""
        used_s = cpu_s(descendants=False) - self._cpu_s
        told = self._comm.all_gather(np.array([used_s, crc32(repr(sorted(os.sched_getaffinity(0))).encode())]))
        every, cores = told[:, 0], told[:, 1]
        node = self._nodes[self._comm.rank]
        row = np.full(4, np.nan)
        note = ""
        if self._meter is not None:
            here = [rank for rank, where in enumerate(self._nodes) if where == node]
            mine = float(every[here].sum())
            if len(set(cores[here])) == 1:  # bound to cores of their own, ranks would be each other's others
                self.others_cores = self._others.cores(mine)
            found = self._meter.read(mine)
            idle_w = np.nan if found.idle_w is None else found.idle_w
            joules = np.nan if found.joules is None else found.joules
            row[:], note = (joules, KINDS.index(found.source), found.seconds, idle_w), found.note
        rows = self._comm.all_gather(row)
        letters = np.frombuffer(note.encode()[:NOTE_BYTES].ljust(NOTE_BYTES, b"\0"), np.uint8)
        notes = self._comm.all_gather(letters.astype(np.float64)).astype(np.uint8)
        return [
            Reading(_known(joules), KINDS[int(kind)], seconds, _known(idle_w), note=_text(letters))
            for (joules, kind, seconds, idle_w), letters in zip(rows.tolist(), notes, strict=True)
            if not np.isnan(kind)
        ]


def _text(letters: np.ndarray) -> str:
    return letters.tobytes().rstrip(b"\0").decode(errors="ignore")


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value
