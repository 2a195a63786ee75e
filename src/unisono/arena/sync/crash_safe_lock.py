"""CrashSafeLock: rights that one process at a time holds, and that nobody can take into the grave.

The one idea: a pen is a byte in a pipe. Whoever reads it holds the pen, and writes it back when done; the kernel sees
to it that only one reads it. If a holder dies, whoever watches over the ranks puts the byte back, while all others
stand still and nobody holds a pen.

    pens = CrashSafeLock(2)
    if pens.take(0): ...; pens.give_back(0)
    pens.restore()                                # the supervisor, after a death

Limits: for ranks that are forked after the pens were made.
"""

import os
from contextlib import suppress
from typing import final


@final
class CrashSafeLock:
    """`count` of them, all free."""

    def __init__(self, count: int) -> None:
        self._pipes = [os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) for _ in range(count)]
        self.restore()

    def take(self, number: int) -> bool:
        """Whether this process holds it now; never blocks."""
        try:
            return bool(os.read(self._pipes[number][0], 1))
        except BlockingIOError:
            return False

    def give_back(self, number: int) -> None:
        os.write(self._pipes[number][1], b".")

    def restore(self) -> None:
        """All are free again; only while nobody works."""
        for source, sink in self._pipes:
            with suppress(BlockingIOError):
                while os.read(source, 16):
                    pass
            os.write(sink, b".")

    def close(self) -> None:
        for end in (end for pipe in self._pipes for end in pipe):
            os.close(end)
        self._pipes.clear()
