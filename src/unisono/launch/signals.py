"""Signals that ask for an end: the first of a kind is a request, the second ends at once.

The one idea: a handler only passes the request on. What is to be done about it (a snapshot, an end at a step that all
ranks share) is done where a step ends, never in the handler.

    with heeding(requests.ask_to_halt): train()

Limits: Python runs handlers in the main thread and between two of its own instructions: one that waits inside a
library (MPI's collectives) is asked when it comes back.
"""

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT)


@contextmanager
def heeding(ask: Callable[[], None], counts: Counter[int] | None = None) -> Iterator[None]:
    """SIGTERM, SIGUSR1, SIGHUP and Ctrl-C call `ask`; the second of a kind is a KeyboardInterrupt.

    Of a kind: batch systems warn with one and end with another. What is ignored stays so: nohup means it.
    counts: where they are counted, for blocks that count together.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may
        return
    seen = Counter[int]() if counts is None else counts
    owner = os.getpid()

    def handle(number: int, frame: object) -> None:
        if os.getpid() != owner:  # a child that was forked meanwhile, such as a worker of a DataLoader: not asked
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        seen[number] += 1
        if seen[number] > 1:
            raise KeyboardInterrupt
        ask()

    before: dict[int, Any] = {}
    try:
        for number in SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, handle)
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, signal.SIG_DFL if handler is None else handler)  # None: not Python's
