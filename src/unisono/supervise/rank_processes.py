"""RankProcesses: the ranks of a supervised run as forked processes: start, kill, receive reports, save stacks.

The one idea: the supervisor decides, and this executes. Anything with the same methods (`Ranks`) can be supervised: the
tests run the supervisor's decisions with ranks that are threads, in every order of events that they choose.

    ranks = RankProcesses(size, body, SupervisorConfig(), on_report); ranks.start(0, after=0); ended = ranks.poll(0.1)

`Stacks`: what a rank that is stuck was doing. It writes its Python stack when a signal asks for it, whatever it does.

    stacks = Stacks(size, folder); stacks.listen(slot)          # in the rank
    path = stacks.save(process_group, slot)                     # in the supervisor

The supervisor asks first, insists then, and knows when the answer is complete. When asked, a rank answers between two
of its Python instructions, where its stack is in order. If it reaches none (it is in C code) a second signal makes
`faulthandler` write the stack in the signal's handler, which needs neither the interpreter nor its lock; to do so at
once would end one rank in a thousand, because in the middle of an instruction a stack may be half made. Either way a
byte follows that ends the stack: the supervisor waits for it, and need not guess how long a busy machine takes. After
the second signal Python itself sends that byte: its handler, called after faulthandler's, first writes the signal's
number to the descriptor that `set_wakeup_fd` names, which is the pipe of the stack.

Limits: the meaning of an exit or a report is decided elsewhere. A rank in an uninterruptible wait of the kernel writes
nothing. In C code, a rank whose own code has called `set_wakeup_fd` (asyncio does) leaves the last byte out; the part
that came in time is kept then, and marked incomplete.
"""

import faulthandler
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, final

from unisono.environment.os_environ import forget_secret
from unisono.files import append_file, make_folder, write_all
from unisono.supervise.children import name_rank, readable
from unisono.supervise.config import Body, SupervisorConfig
from unisono.supervise.processes import ChildExit, ProcessGroup, run_child
from unisono.supervise.signals import SIGNALS

ASK, INSIST = signal.SIGUSR2, signal.SIGSTKFLT  # which no other program sends
_HEARD, END = bytes([ASK]), bytes([INSIST])
"""Python writes the first when it hears that it is asked."""
INCOMPLETE = b"  (the rest of it did not come in time)\n"
WAITS = {ASK: 1.0, INSIST: 2.0}
"""Seconds that a rank may take to answer. It is stuck anyway, and others wait for it."""


@final
class Stacks:
    """Those of `size` ranks. Files are made in `folder`, and only if a rank answers; None: no rank is asked."""

    def __init__(self, size: int, folder: Path | None) -> None:
        self._folder = folder
        # Not blocking: Python demands it of its end, and a rank whose answer is not read must not wait in its handler.
        self._pipes = [os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) for _ in range(size)]

    def listen(self, slot: int) -> None:
        """In a rank, on its main thread."""
        sink = self._pipes[slot][1]

        def tell(number: int, frame: object) -> None:
            faulthandler.dump_traceback(sink, all_threads=True)
            with suppress(BlockingIOError):  # full: it is not read
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
            _take(source)  # the answer to an earlier request
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


class Ranks(Protocol):
    """What a supervisor needs of those whom it watches, by slot."""

    @property
    def pids(self) -> dict[int, int]:
        """The processes of those that live, as far as is known."""

    def start(self, slot: int, after: int) -> None:
        """One that waits for a view later than number `after`; an OSError if it could not be started."""

    def poll(self, timeout_s: float) -> list[ChildExit]:
        """Waits until a rank reports, which is passed on, or a process ends; the exits."""

    def kill(self, slot: int) -> None:
        """Its end is seen by the next `poll`."""

    def save_stack(self, slot: int) -> str:
        """Where the stack of one that is stuck was written; empty if nowhere."""

    def close(self) -> None:
        """Ends the processes that still live."""


@final
class RankProcesses:
    """`size` ranks, each of which runs `body`; their reports go to `on_report(slot, value)`."""

    def __init__(self, size: int, body: Body, config: SupervisorConfig, on_report: Callable[[int, Any], None]) -> None:
        self._body, self._rank_of = body, config.rank_of
        self._process_group, self._stacks = ProcessGroup(on_report, grace_s=0.0), Stacks(size, config.stacks)

    @property
    def pids(self) -> dict[int, int]:
        return {slot: self._process_group.pid(slot) for slot in self._process_group.living}

    def start(self, slot: int, after: int) -> None:
        def live(report: Callable[[Any], None]) -> Any:
            name_rank(self._rank_of(slot))
            forget_secret()
            # The parent alone decides what a signal means, though SLURM may send it to all processes.
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            self._stacks.listen(slot)
            return self._body(slot, after, report)

        self._process_group.start(slot, partial(run_child, live))

    def poll(self, timeout_s: float) -> list[ChildExit]:
        return self._process_group.poll(timeout_s)

    def kill(self, slot: int) -> None:
        self._process_group.kill(slot)

    def save_stack(self, slot: int) -> str:
        return str(self._stacks.save(self._process_group, slot) or "")

    def close(self) -> None:
        try:
            self._process_group.close()
        finally:
            self._stacks.close()
