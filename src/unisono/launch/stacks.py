"""Stacks: what a rank that is stuck was doing. It writes its Python stack when asked by a signal, whatever it is at.

The one idea: a stack that is complete says so. It is written in the signal's handler (`faulthandler`, which needs
neither the interpreter nor its lock), and then Python's own handler is called, whose first act is to write the number
of the signal to the descriptor that `set_wakeup_fd` names. Both write to one pipe, so that byte is the end of the
stack, and the supervisor waits for it instead of guessing how long a rank on a busy machine may take.

    stacks = Stacks(size, folder); stacks.listen(slot)          # in the rank
    path = stacks.save(crew, slot)                              # in the supervisor

Limits: a rank in an uninterruptible wait of the kernel writes nothing. A rank whose own code calls `set_wakeup_fd`
(asyncio does) leaves out the end; what came in time is kept then, and said to be incomplete.
"""

import faulthandler
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import final

from unisono.launch.children import readable
from unisono.launch.crew import Crew

STACK_SIGNAL = signal.SIGUSR2
END = bytes([STACK_SIGNAL])
INCOMPLETE = b"  (the rest of it did not come in time)\n"
WAIT_S = 2.0
"""How long a rank may take to answer. It is stuck anyway, and others wait for it."""


@final
class Stacks:
    """Of `size` ranks. Files are made in `folder`, and only if there is something to keep; None: nobody is asked."""

    def __init__(self, size: int, folder: Path | None) -> None:
        self._folder = folder
        # Not blocking: Python demands it of its end, and a rank that nobody listens to must not wait in its handler.
        self._pipes = [os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) for _ in range(size)]

    def listen(self, slot: int) -> None:
        """In a rank, on its main thread."""
        sink = self._pipes[slot][1]
        signal.signal(STACK_SIGNAL, lambda number, frame: None)
        signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
        faulthandler.register(STACK_SIGNAL, file=sink, all_threads=True, chain=True)

    def save(self, crew: Crew, slot: int) -> Path | None:
        """In the supervisor: asks for the stack and waits for it a little; the file, if there is one."""
        if self._folder is None:
            return None
        source, path = self._pipes[slot][0], self._folder / f"rank-{slot}.stack"
        with suppress(OSError):
            _read(source)  # what somebody else asked for
            crew.signal(slot, STACK_SIGNAL)
            crew.signal(slot, signal.SIGCONT)  # a stopped process handles no signal
            if text := _answer(source):
                self._folder.mkdir(exist_ok=True)
                with open(path, "ab") as file:
                    file.write(text)
                return path
        return None

    def close(self) -> None:
        for pipe in self._pipes:
            for end in pipe:
                os.close(end)


def _answer(source: int) -> bytes:
    """A whole stack; what came of it, if the rest does not come in time."""
    text, deadline = b"", time.monotonic() + WAIT_S
    while END not in text:
        if not readable(source, deadline - time.monotonic()):
            return text + INCOMPLETE if text else b""
        text += _read(source)
    return text.partition(END)[0]


def _read(source: int) -> bytes:
    with suppress(BlockingIOError):
        return os.read(source, 1 << 20)
    return b""
