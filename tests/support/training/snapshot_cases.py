"""Snapshots whose contents follow from their position, and disks that fail or kill at a chosen call."""

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from unisono.storage.snapshots.disk import REAL, Disk
from unisono.storage.snapshots.snapshot import Snapshot, listed
from unisono.storage.snapshots.writer import Written, write


def arrays_at(position: int) -> dict[str, dict[str, np.ndarray]]:
    """Names that do not sort as they are given, several types, a scalar, an empty array, an empty group."""
    values = np.random.default_rng(position).normal(size=(7, 11)).astype(np.float32)
    return {
        "params": {"10.W": values, "2.b": values[0] + position, "2.A": np.float32(position).reshape(())},
        "state": {"moment": values.astype(np.float64) ** 2, "step": np.array([position]), "none": np.empty((0, 3))},
        "buffers": {},
    }


def facts_at(position: int) -> dict[str, object]:
    return {"epoch": position // 10, "step": position % 10, "seed": 7, "fingerprint": {"blas": ["openblas"]}, "lr": 0.1}


def put(folder: Path, position: int, keep: int = 2, disk: Disk = REAL) -> Written:
    return write(folder, position, arrays_at(position), facts_at(position), keep=keep, disk=disk)


def is_exact(snapshot: Snapshot) -> bool:
    """Whether every name, order, shape, type and bit is that of the snapshot's position."""
    expected = arrays_at(snapshot.position)
    facts = [
        [
            (group, name, array.shape, array.dtype, array.tobytes())
            for group, arrays in groups.items()
            for name, array in arrays.items()
        ]
        for groups in ({group: snapshot.arrays(group) for group in snapshot.groups}, expected)
    ]
    return facts[0] == facts[1] and snapshot.facts == facts_at(snapshot.position)


def positions(folder: Path) -> list[int]:
    """Of everything that has the name of a snapshot, newest first."""
    return [int(path.name.partition("-")[2]) for path in listed(folder)]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below `folder`."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def is_locked(lock: Path) -> bool:
    """Whether somebody keeps others away."""
    with open(lock) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


class Watched(Disk):
    """Counts the calls; at those whose number `chosen` accepts does `fault` before the call, within it, or after.

    Within: half of a write's bytes are on the disk. `fault` raises, or ends the process.
    """

    def __init__(self, chosen: Callable[[int], bool], when: str, fault: Callable[[], None]) -> None:
        self.calls: list[str] = []
        self.chosen, self.when, self.fault = chosen, when, fault

    def call(self, name: str, *args):
        self.calls.append(name)
        if not self.chosen(len(self.calls)):
            return getattr(REAL, name)(*args)
        if self.when == "within" and name == "write":
            fd, data = args
            REAL.write(fd, data[: len(data) // 2])
        if self.when == "after":
            done = getattr(REAL, name)(*args)
            if name == "create":
                os.close(done)
        return self.fault()

    def mkdir(self, path):
        return self.call("mkdir", path)

    def create(self, path):
        return self.call("create", path)

    def write(self, fd, data):
        return self.call("write", fd, data)

    def fsync(self, fd):
        return self.call("fsync", fd)

    def rename(self, old, new):
        return self.call("rename", old, new)

    def remove(self, path):
        return self.call("remove", path)


def failure(number: int) -> Callable[[], None]:
    def fault() -> None:
        raise OSError(number, os.strerror(number))

    return fault


ERRORS = [errno.ENOSPC, errno.EIO, errno.EROFS]
