"""Knocking: whether one machine can open a connection to another at all, found out in seconds.

    listen(board, "door/0/1", "10.0.0.1", timeout_s=5.0)         # one of the two
    knock(board, "door/0/1", timeout_s=5.0)                      # the other one

The one idea: a library that connects (gloo) tries for much longer than it was told to, again and again, where a
firewall swallows what is sent; a plain connection, tried first, has one time-out. Nothing is sent over it.
"""

import socket
from contextlib import suppress

from unisono.arena.waiting import wait_until
from unisono.comm.roll_call import Board
from unisono.errors import CommTimeout


def listen(board: Board, name: str, address: str, timeout_s: float) -> None:
    """Lets the other one in, once; a `CommTimeout` if it does not come. name: the same for both, and used once."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as door:
        board.set(name, f"{address} {door.getsockname()[1]}")
        door.settimeout(timeout_s)
        with suppress(OSError):
            door.accept()[0].close()
            return
    raise CommTimeout(f"nobody connected to {address} within {timeout_s:g} s")


def knock(board: Board, name: str, timeout_s: float) -> None:
    """Opens a connection to whoever listens, and closes it; a `CommTimeout` if there is none to be had."""
    if not wait_until(lambda: board.check([name]), timeout_s):
        raise CommTimeout(f"nobody listened within {timeout_s:g} s")
    address, port = board.get(name).decode().split()
    try:
        socket.create_connection((address, int(port)), timeout_s).close()
    except OSError as error:
        raise CommTimeout(f"{address} cannot be reached: {error.strerror or error}") from error
