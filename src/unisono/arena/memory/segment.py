"""Segment: memory that several processes of one machine see at once; Sections: where named arrays lie in it.

The one idea: `memfd_create` + `posix_fallocate` + `mmap`. The memory has no name, so nothing is left behind when the
processes end, however they end; it is not bound by the size of /dev/shm; and it is really there, or the constructor
raises an error (a sparse file would end in SIGBUS later). Forked children inherit it; other processes receive the
descriptor (`fd_passing.py`).

>>> segment = Segment.create(4096)
>>> segment.words(0, 8)[3] = 7

Each process that knows names, lengths and types computes the same places; a section starts on a page:

>>> Sections({"params": (2048, np.dtype(np.float32)), "losses": (8, np.dtype(np.float64))}).nbytes
12288

Limits: Linux. Views of a segment keep it mapped; `close` only drops the segment's own hold on it.
"""

import errno
import fcntl
import mmap
import os
from collections.abc import Mapping
from math import prod
from typing import Any, final

import numpy as np

from unisono.errors import UserError
from unisono.resources import available_bytes, readable_bytes

PAGE = 4096
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class Segment:
    """Shared memory of `nbytes`, zeroed at the start. Use `create` or `attach`."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.nbytes = os.fstat(fd).st_size
        self._memory = memoryview(mmap.mmap(fd, self.nbytes))

    @classmethod
    def create(cls, nbytes: int) -> "Segment":
        """New memory, reserved at once; a `UserError` with both figures if there is not enough."""
        nbytes = max(PAGE, -(-nbytes // PAGE) * PAGE)
        # The kernel does not limit a memfd: it would kill a process instead of refusing.
        if nbytes > (free := available_bytes()):
            raise not_enough_memory(nbytes, free)
        fd = -1
        try:
            fd = os.memfd_create("unisono", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.posix_fallocate(fd, 0, nbytes)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
            return cls(fd)
        except OSError as error:
            if fd >= 0:
                os.close(fd)
            if error.errno == errno.ENOMEM:
                raise not_enough_memory(nbytes, free) from error
            raise UserError(
                f"{readable_bytes(nbytes)} of shared memory could not be made: {error.strerror}",
                hint="look at the limits of this process: ulimit -a",
            ) from error

    @classmethod
    def attach(cls, fd: int) -> "Segment":
        """The segment behind a descriptor that was inherited or handed over; takes the descriptor."""
        return cls(fd)

    def bytes(self, offset: int, count: int) -> memoryview:
        """`count` bytes as a writable memoryview."""
        return self._memory[offset : offset + count]

    def words(self, offset: int, count: int) -> memoryview:
        """`count` int64 words; a load or store of one of them is a single instruction."""
        return self._memory[offset : offset + 8 * count].cast("q")

    def array(self, offset: int, count: int, dtype: np.dtype) -> np.ndarray:
        """`count` elements as a 1-d array."""
        return np.frombuffer(self._memory, dtype, count, offset)

    def close(self) -> None:
        """Closes the descriptor; the memory goes when the last view in the last process goes."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def not_enough_memory(needed: int, free: int) -> UserError:
    """The error for shared memory that is not there."""
    return UserError(
        f"{readable_bytes(needed)} of shared memory are needed, {readable_bytes(free)} are available",
        hint="use fewer ranks or shards, or smaller arrays, or raise the memory limit of the job",
    )


@final
class Sections:
    """`table`: name -> (elements or shape, dtype), in the order in which they lie."""

    def __init__(self, table: Mapping[str, tuple[int | tuple[int, ...], np.dtype]]) -> None:
        self._places: dict[str, tuple[int, tuple[int, ...], np.dtype]] = {}
        end = 0
        for name, (size, dtype) in table.items():
            shape = (size,) if isinstance(size, int) else size
            self._places[name] = end, shape, dtype
            end += -(-prod(shape) * dtype.itemsize // PAGE) * PAGE
        self.nbytes = end

    def pack(self) -> list[Any]:
        """The table as JSON, for another process; `unpack` takes it."""
        return [[name, list(shape), dtype.str] for name, (_, shape, dtype) in self._places.items()]

    @classmethod
    def unpack(cls, packed: list[Any]) -> "Sections":
        return cls({name: (tuple(shape), np.dtype(kind)) for name, shape, kind in packed})

    def array(self, segment: Segment, name: str) -> np.ndarray:
        """The array of that name in `segment`."""
        offset, shape, dtype = self._places[name]
        return segment.array(offset, prod(shape), dtype).reshape(shape)

    def words(self, segment: Segment, name: str) -> memoryview:
        """The same as int64 words, for flags."""
        offset, shape, _ = self._places[name]
        return segment.words(offset, prod(shape))
