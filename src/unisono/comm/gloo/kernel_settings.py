"""Kernel settings for gloo's connections and threads: TCP keepalive, and SCHED_BATCH for its event thread.

    with batch_scheduled_threads(), kept_alive():
        ProcessGroupGloo(...)                     # all threads and connections that it opens inside

The one idea: gloo sets neither, and offers no option for them, so sockets and threads that appear inside the block are
found in /proc and set from outside.

`kept_alive`: a machine that lost its power, or its cable, closes no connection; a rank that waits for it would wait
until its time-out. With keepalive the kernel closes such connections within seconds. While the other end lives, however
long it computes, its kernel answers.

`batch_scheduled_threads`: gloo's event thread asks again and again for a lock instead of sleeping on it. Where it wakes
on the core of the thread that holds the lock, it takes that core and asks in vain until the next clock tick: with as
many ranks as cores an exchange of 60 microseconds takes 4 milliseconds. With Linux' policy SCHED_BATCH the wake-up of a
thread is never urgent: it runs when the core is free or the holder's time is up. That needs no privilege.

Limits: Linux only. A link that is cut for less than `DEAD_S` is not noticed. Where a sandbox forbids it, threads stay
as they are.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

DEAD_S = 10
_IDLE_S, _EVERY_S = 4, 2


@contextmanager
def kept_alive() -> Iterator[None]:
    """The TCP connections that this process opens inside, by whichever library."""
    before = _sockets()
    yield
    for fd in _sockets() - before:
        with suppress(OSError):  # closed in between, or not TCP
            watch(fd)


def watch(fd: int) -> None:
    """An `OSError` if it is no TCP socket."""
    with socket.socket(fileno=os.dup(fd)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _EVERY_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, (DEAD_S - _IDLE_S) // _EVERY_S)
        # Of data that were sent and never acknowledged; without it, TCP tries for a quarter of an hour.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * DEAD_S)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _sockets() -> set[int]:
    found = set()
    for entry in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{entry}").startswith("socket:"):
                found.add(int(entry))
    return found


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
