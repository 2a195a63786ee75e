"""The calls by which a snapshot reaches the disk, as one object that can be wrapped, and what is built from them.

The one idea: everything that changes the disk goes through a `Disk`. A test wraps it to make the k-th call fail or be
the process's last, and so walks through every moment at which a disk can fill up or a process can be killed.

    write_file(REAL, Path("x"), b"bytes"); sync_directory(REAL, Path("."))

Limits: what reads is not here. Errors of `close` are not seen; after a successful fsync there are none to see.
"""

import os
import stat
from abc import ABC, abstractmethod
from pathlib import Path
from typing import final

from unisono.files import naming, new_file, open_folder, sync_folder

PIECE_BYTES = 1 << 24


class Disk(ABC):
    """One system call each; an `OSError` if it fails."""

    @abstractmethod
    def mkdir(self, path: Path) -> None: ...

    @abstractmethod
    def create(self, path: Path) -> int:
        """The descriptor of a new file, which the caller closes."""

    @abstractmethod
    def write(self, fd: int, data: memoryview) -> int:
        """How many of the bytes were taken."""

    @abstractmethod
    def fsync(self, fd: int) -> None: ...

    @abstractmethod
    def rename(self, old: Path, new: Path) -> None: ...

    @abstractmethod
    def remove(self, path: Path) -> None:
        """A file, a link (not what it leads to) or an empty directory."""


@final
class RealDisk(Disk):
    def mkdir(self, path: Path) -> None:
        os.mkdir(path)

    def create(self, path: Path) -> int:
        return new_file(path)

    def write(self, fd: int, data: memoryview) -> int:
        return os.write(fd, data)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def remove(self, path: Path) -> None:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            os.rmdir(path)
        else:
            os.unlink(path)


REAL = RealDisk()


def write_file(disk: Disk, path: Path, data: bytes | memoryview) -> None:
    """A new file that is on the disk when this returns; its name is once the directory was synced."""
    view = memoryview(data)
    fd = disk.create(path)
    try:
        with naming(path):
            done = 0
            while done < len(view):
                done += disk.write(fd, view[done : done + PIECE_BYTES])
            disk.fsync(fd)
    finally:
        os.close(fd)


def sync_directory(disk: Disk, path: Path) -> None:
    """The names in a directory are on the disk when this returns."""
    with open_folder(path) as folder:
        sync_folder(folder, path, disk.fsync)


def remove_tree(disk: Disk, path: Path) -> None:
    """A directory with everything in it; links are removed, never followed."""
    if stat.S_ISDIR(os.lstat(path).st_mode):
        for name in os.listdir(path):
            remove_tree(disk, path / name)
    disk.remove(path)
