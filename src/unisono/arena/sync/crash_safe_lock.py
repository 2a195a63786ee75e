"""CrashSafeLocks: locks between processes that survive the death of their holder.

The one idea: a lock is a byte in a pipe. The process that reads the byte holds the lock, and writes it back to release
it; the kernel lets only one process read it. If a holder dies, the supervisor resets all locks while the other ranks
stand still and hold none.

    locks = CrashSafeLocks(2)
    if locks.try_acquire(0): ...; locks.release(0)
    locks.reset()                                 # the supervisor, after a death

Limits: only for ranks that are forked after the locks were made.
"""

import os
from contextlib import suppress
from typing import final


@final
class CrashSafeLocks:
    """`count` locks, numbered from 0, all free at the start."""

    def __init__(self, count: int) -> None:
        self._pipes = [os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) for _ in range(count)]
        self.reset()

    def try_acquire(self, number: int) -> bool:
        """Whether this process holds the lock now; never blocks."""
        try:
            return bool(os.read(self._pipes[number][0], 1))
        except BlockingIOError:
            return False

    def release(self, number: int) -> None:
        os.write(self._pipes[number][1], b".")

    def reset(self) -> None:
        """Frees all locks; only while no rank holds or takes one."""
        for source, sink in self._pipes:
            with suppress(BlockingIOError):
                while os.read(source, 16):
                    pass
            os.write(sink, b".")

    def close(self) -> None:
        for end in (end for pipe in self._pipes for end in pipe):
            os.close(end)
        self._pipes.clear()
