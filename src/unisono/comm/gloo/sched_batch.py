"""SCHED_BATCH for helper threads, so that they do not push the working thread off its core.

gloo's event thread asks again and again for a lock instead of sleeping on it. Where it wakes on the core of the thread
that holds the lock, it takes that core and asks in vain until the next clock tick: with as many ranks as cores an
exchange of 60 microseconds takes 4 milliseconds. Linux' policy SCHED_BATCH says of a thread that its waking is never
urgent: it runs when the core is free or the holder's time is up. That needs no privilege.

    with batch_scheduled_threads():
        group = ProcessGroupGloo(...)

Limits: Linux only; elsewhere, or where a sandbox forbids it, threads stay as they are.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def batch_scheduled_threads() -> Iterator[None]:
    """Threads that any library starts inside get the scheduling class for batch work."""
    before = _threads()
    yield
    for thread in _threads() - before:
        with suppress(OSError):  # it may have ended meanwhile
            os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))


def _threads() -> set[int]:
    try:
        return set(map(int, os.listdir("/proc/self/task")))
    except FileNotFoundError:
        return set()
