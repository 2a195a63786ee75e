"""Handing a file descriptor to processes that we did not fork (mpirun, torchrun, srun).

The one idea: a Unix socket in Linux's abstract name space carries it (SCM_RIGHTS). Such a socket has no file, so
nothing is left behind by a kill at any moment. Its name is 128 random bits, told to the takers over a communicator they
already have, and the kernel certifies who is at the other end (SO_PEERCRED): another user is refused.

    offer = Offer(segment.fd); tell(offer.name); offer.serve(takers=3, timeout_s=10)     # one process
    fd = take(name, timeout_s=10)                                                        # each of the others

Limits: both ends must share a network name space; that is what makes them one *node* for unisono (`comm/node.py`).
"""

import os
import secrets
import socket
import struct
import time

from unisono.errors import CommError, CommTimeout

NAME_BYTES = 32


class Offer:
    """A descriptor that waits to be fetched."""

    def __init__(self, fd: int) -> None:
        self.name = secrets.token_hex(NAME_BYTES // 2)
        self._fd = fd
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(_address(self.name))
        self._socket.listen(128)

    def serve(self, takers: int, timeout_s: float) -> None:
        """Gives the descriptor to `takers` processes, then stops listening."""
        deadline = time.monotonic() + timeout_s
        with self._socket:
            for served in range(takers):
                try:
                    self._socket.settimeout(max(0.001, deadline - time.monotonic()))
                    peer, _ = self._socket.accept()
                except TimeoutError:
                    raise CommTimeout(
                        f"{takers - served} of {takers} processes did not fetch the shared memory in {timeout_s:g} s",
                        hint="did one of them end? its own message says why",
                    ) from None
                with peer:
                    _check_user(peer)
                    peer.settimeout(timeout_s)
                    socket.send_fds(peer, [b"!"], [self._fd])

    def withdraw(self) -> None:
        """Stops listening."""
        self._socket.close()


def take(name: str, timeout_s: float) -> int:
    """Fetches the descriptor offered under `name`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(timeout_s)
        try:
            peer.connect(_address(name))
            _check_user(peer)
            _, fds, _, _ = socket.recv_fds(peer, 1, 1)
        except OSError as error:
            raise CommError(f"the shared memory of this node could not be fetched: {error}") from error
    if len(fds) != 1:
        raise CommError("the process that offers this node's shared memory ended before it was fetched")
    os.set_inheritable(fds[0], False)
    return fds[0]


def _address(name: str) -> str:
    return f"\0unisono-{name}"


def _check_user(peer: socket.socket) -> None:
    _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    if uid != os.geteuid():
        raise CommError(f"a process of user id {uid} asked for the shared memory of user id {os.geteuid()}")
