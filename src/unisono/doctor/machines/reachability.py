"""Reachability: whether one machine can open a connection to another at all, found out in seconds.

    listen(board, "door/0/1", "10.0.0.1", timeout_s=5.0)         # one of the two
    try_connection(board, "door/0/1", timeout_s=5.0)                      # the other one

The one idea: a library that connects (gloo) tries for much longer than it was told to, again and again, where a
firewall swallows what is sent; a plain connection, tried first, has one time-out. Nothing is sent over it but a word
that only whoever reads the board knows, so nobody else is taken for the one who knocks.
"""

import hmac
import ipaddress
import secrets
import socket
import time
from contextlib import suppress

from unisono.arena.sync.waiting import wait_until
from unisono.comm.topology.rendezvous import RendezvousStore
from unisono.errors import CommError, CommTimeout

_WORD_BYTES = 16
_SAYING_S = 1.0
"""For whoever knocks to say the word; then the next one has a turn."""


def listen(board: RendezvousStore, name: str, address: str, timeout_s: float) -> None:
    """Lets the other one in, once; a `CommTimeout` if it does not come. name: the same for both, and used once."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as door:
        word = secrets.token_hex(_WORD_BYTES).encode()
        board.set(name, f"{address} {door.getsockname()[1]} {word.decode()}")
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            door.settimeout(left_s)
            with suppress(OSError):
                line, _ = door.accept()
                with line:
                    line.settimeout(min(left_s, _SAYING_S))
                    known = hmac.compare_digest(line.recv(len(word), socket.MSG_WAITALL), word)
                if known:
                    board.delete_key(name)
                    return
    raise CommTimeout(f"nobody connected to {address} within {timeout_s:g} s")


def try_connection(board: RendezvousStore, name: str, timeout_s: float) -> None:
    """Opens a connection to whoever listens, and closes it; a `CommTimeout` if there is none to be had."""
    if not wait_until(lambda: board.check([name]), timeout_s):
        raise CommTimeout(f"nobody listened within {timeout_s:g} s")
    address, port, word = _read(board.get(name))
    try:
        with socket.create_connection((address, port), timeout_s) as line:
            line.sendall(word)
    except OSError as error:
        raise CommTimeout(f"{address} cannot be reached: {error.strerror or error}") from error


def _read(told: bytes) -> tuple[str, int, bytes]:
    try:
        address, port, word = told.split()
        ipaddress.ip_address(address.decode().partition("%")[0])
        if not 0 < int(port) < 65536:
            raise ValueError
        return address.decode(), int(port), word
    except ValueError:
        raise CommError("what is on the board is no address, port and word to knock with") from None
