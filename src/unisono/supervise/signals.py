"""Signals that ask for an end: the first of a kind is a request, the second ends at once.

The one idea: a handler only passes the request on. What is to be done about it (a snapshot, an end at a step that all
ranks share) is done where a step ends, never in the handler.

    with stop_requests(requests.ask_to_halt): train()
    with as_ctrl_c(): study()

One request may come twice: SLURM sends a signal to every process of a job, and torchrun or srun, among them, pass their
own on. So a second one of a kind counts only when some seconds have passed; but for Ctrl-C, which a person presses.

Limits: Python runs handlers in the main thread and between two of its own instructions: one that waits inside a
library (MPI's collectives) is asked when it comes back.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, final

REPEAT_S = 5.0
"""Within this time a second signal of a kind is the same request."""

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT)


@contextmanager
def stop_requests(
    ask: Callable[[], None], since: dict[int, float] | None = None, *, alike: bool = False
) -> Iterator[None]:
    """SIGTERM, SIGUSR1, SIGHUP and Ctrl-C call `ask`; the second of a kind is a KeyboardInterrupt.

    Of a kind: batch systems warn with one and end with another. The second: after `REPEAT_S`, but for Ctrl-C. What is
    ignored stays so: nohup means it. since: where it is noted when the first of a kind came, for blocks that count
    together. alike: they are all of one kind, whichever comes first.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may
        return
    first = {} if since is None else since
    owner = os.getpid()

    def handle(number: int, frame: object) -> None:
        if os.getpid() != owner:  # a child that was forked meanwhile, such as a worker of a DataLoader: not asked
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        now, kind = time.monotonic(), 0 if alike else number
        if kind not in first:
            first[kind] = now
            ask()
        elif number == signal.SIGINT or now - first[kind] >= REPEAT_S:
            raise KeyboardInterrupt

    before: dict[int, Any] = {}
    try:
        for number in SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, handle)
        yield
    finally:
        for each, handler in before.items():
            if signal.getsignal(each) is not handle:
                continue  # `ignore_requests`
            signal.signal(each, signal.SIG_DFL if handler is None else handler)  # None: not Python's


def as_ctrl_c() -> AbstractContextManager[None]:
    """All of these signals are what Ctrl-C is, a KeyboardInterrupt: batch systems send them, and what ends well by one
    ends well by the others. What comes within `REPEAT_S` of the first, whichever it is, does not disturb the end,
    but for Ctrl-C."""
    return stop_requests(_interrupt, alike=True)


def _interrupt() -> None:
    raise KeyboardInterrupt


def ignore_requests() -> None:
    """From here on this process leaves, as it was asked to: an echo would change its exit code. Ctrl-C still counts."""
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if number != signal.SIGINT:
                signal.signal(number, signal.SIG_IGN)


def finish_undisturbed() -> None:
    """The run is finished, and what it found is being written down: requests to end come too late. From here on this
    process ignores them, the first Ctrl-C too; pressed once more it is a KeyboardInterrupt, for a disk may hang."""
    ignore_requests()
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, _Patient())


@final
class _Patient:
    """A handler that lets the first one pass."""

    def __init__(self) -> None:
        self._heard = False

    def __call__(self, number: int, frame: object) -> None:
        if self._heard:
            raise KeyboardInterrupt
        self._heard = True


@contextmanager
def restore_handlers() -> Iterator[None]:
    """After the block signals are handled as before: for a process that goes on after a run."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                if handler is not None:  # else not Python's
                    signal.signal(number, handler)


def exit_undisturbed() -> None:
    """All is written and said, and only the interpreter is left to end, which gives its handlers up first."""
    ignore_requests()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def ignore_signals_after(*failures: type[BaseException]) -> Iterator[None]:
    """From such a failure on SIGTERM is ignored: launchers send it to those who are left when a rank has died, who are
    about to leave anyway, and it would keep them from writing down what was reached and from saying why."""
    try:
        yield
    except failures:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise
