"""Stacks: what a rank that is stuck was doing. It writes its Python stack when asked by a signal, whatever it is at.

The one idea: ask first, insist then, and know when the answer is complete. Asked, a rank answers between two of its
Python instructions, where its stack is in order. If it comes to none (it is in C code) a second signal makes
`faulthandler` write the stack in the signal's handler, which needs neither the interpreter nor its lock; to do so at
once would end one rank in a thousand, for in the middle of an instruction a stack may be half made. Either way a byte
follows that ends the stack: the supervisor waits for it, and need not guess how long a busy machine takes.

    stacks = Stacks(size, folder); stacks.listen(slot)          # in the rank
    path = stacks.save(process_group, slot)                              # in the supervisor

Who insists gets the last byte from Python itself: its handler, called after faulthandler's, first of all writes the
signal's number to the descriptor that `set_wakeup_fd` names, which is the pipe of the stack.

Limits: a rank in an uninterruptible wait of the kernel writes nothing. In C code, a rank whose own code has called
`set_wakeup_fd` (asyncio does) leaves the last byte out; what came in time is kept then, and said to be incomplete.
"""

import faulthandler
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import final

from unisono.files import append_file, make_folder, write_all
from unisono.supervise.children import readable
from unisono.supervise.processes import ProcessGroup

ASK, INSIST = signal.SIGUSR2, signal.SIGSTKFLT  # which nobody else sends
_HEARD, END = bytes([ASK]), bytes([INSIST])
"""Python writes the first when it hears that it is asked."""
INCOMPLETE = b"  (the rest of it did not come in time)\n"
WAITS = {ASK: 1.0, INSIST: 2.0}
"""Seconds that a rank may take to answer. It is stuck anyway, and others wait for it."""


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

        def tell(number: int, frame: object) -> None:
            faulthandler.dump_traceback(sink, all_threads=True)
            with suppress(BlockingIOError):  # full: nobody listens
                os.write(sink, END)

        signal.signal(ASK, tell)
        signal.signal(INSIST, lambda number, frame: None)
        signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
        faulthandler.register(INSIST, file=sink, all_threads=True, chain=True)

    def save(self, process_group: ProcessGroup, slot: int) -> Path | None:
        """In the supervisor: asks for the stack and waits for it a little; the file, if there is one."""
        if self._folder is None:
            return None
        source, path = self._pipes[slot][0], self._folder / f"rank-{slot}.stack"
        with suppress(OSError):
            _take(source)  # what somebody else asked for
            text = b""
            for number, wait_s in WAITS.items():
                process_group.signal(slot, number)
                process_group.signal(slot, signal.SIGCONT)  # a stopped process handles no signal
                text += _hear(source, wait_s)
                if END in text:
                    break
            whole, end, _ = text.replace(_HEARD, b"").partition(END)
            if whole:
                make_folder(self._folder, within=self._folder.parent)
                with append_file(path, within=self._folder.parent) as file:
                    write_all(file, whole if end else whole + INCOMPLETE)
                return path
        return None

    def close(self) -> None:
        for pipe in self._pipes:
            for end in pipe:
                os.close(end)


def _hear(source: int, wait_s: float) -> bytes:
    """What comes up to the end of a stack, or until time is up."""
    text, deadline = b"", time.monotonic() + wait_s
    while END not in text and readable(source, deadline - time.monotonic()):
        text += _take(source)
    return text


def _take(source: int) -> bytes:
    """What is there."""
    with suppress(BlockingIOError):
        return os.read(source, 1 << 20)
    return b""
