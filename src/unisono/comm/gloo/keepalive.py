"""Keepalive: connections whose other end is gone without a word are closed within seconds, by the kernel.

The one idea: a machine that lost its power, or its cable, closes no connection; whoever waits for it would wait until
its time is up. So the kernel is told to ask after the other end of each connection that a library (gloo) has opened.
While the other end lives, however long it computes, its kernel answers.

    with kept_alive(): ProcessGroupGloo(...)          # all connections opened inside

Limits: Linux's options of TCP. A link that is cut for less than `DEAD_S` is not noticed.
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
