"""Handing a file descriptor to processes that we did not fork (mpirun, torchrun, srun).

The one idea: a Unix socket in Linux's abstract name space carries it (SCM_RIGHTS). Such a socket has no file, so
nothing is left behind by a kill at any moment. Its name is random, told to the takers over a communicator they already
have; other users of the machine can read it, so it is the kernel that certifies who is at the other end (SO_PEERCRED):
another user is turned away, on both sides.

    offer = DescriptorOffer(segment.fd); tell(offer.name); offer.serve(takers=[1, 2, 3], timeout_s=10)     # one process
    fd = take(name, timeout_s=10)                                                                # each of the others

Limits: both ends must share a network name space; that is what makes them one *node* for unisono
(`comm/topology/shared_machine.py`).
"""

import errno
import os
import secrets
import socket
import struct
import time
from contextlib import suppress

from unisono.errors import CommError, CommTimeout

NAME_BYTES = 32
_BACKLOG = 4096


class DescriptorOffer:
    """A descriptor that waits to be fetched."""

    def __init__(self, fd: int) -> None:
        self.name = secrets.token_hex(NAME_BYTES // 2)
        self._fd = fd
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(_address(self.name))
        self._socket.listen(_BACKLOG)

    def serve(self, takers: list[int], timeout_s: float) -> None:
        """Gives the descriptor to as many processes as there are `takers`, whose numbers are for the error."""
        deadline = time.monotonic() + timeout_s
        served = 0
        while served < len(takers):
            try:
                self._socket.settimeout(max(0.001, deadline - time.monotonic()))
                peer, _ = self._socket.accept()
            except TimeoutError:
                raise CommTimeout(
                    f"{len(takers) - served} of the ranks {', '.join(map(str, takers))} did not fetch the shared "
                    f"memory in {timeout_s:g} s",
                    missing=takers if not served else (),
                    hint="did one of them end? its own message says why",
                ) from None
            with peer:
                # A stranger, who may have read the name in /proc/net/unix, gets nothing and stops nobody.
                if user_of(peer) != os.geteuid():
                    continue
                peer.settimeout(max(0.001, deadline - time.monotonic()))
                with suppress(BrokenPipeError, ConnectionResetError):  # it ended: the time-out above will tell
                    socket.send_fds(peer, [b"!"], [self._fd])
                    served += 1

    def withdraw(self) -> None:
        """Stops listening; may be called twice."""
        self._socket.close()


def take(name: str, timeout_s: float) -> int:
    """Fetches the descriptor offered under `name`."""
    deadline = time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(timeout_s)
        try:
            while (code := peer.connect_ex(_address(name))) == errno.EAGAIN and time.monotonic() < deadline:
                time.sleep(0.001)  # more ranks at once than the listener's queue holds
            if code:
                raise OSError(code, os.strerror(code))
            if (user := user_of(peer)) != os.geteuid():
                raise CommError(f"user id {user} offers shared memory to user id {os.geteuid()}")
            _, fds, _, _ = socket.recv_fds(peer, 1, 1)
        except OSError as error:
            raise CommError(f"the shared memory of this node could not be fetched: {error}") from error
    if len(fds) != 1:
        raise CommError("the process that offers this node's shared memory ended before it was fetched")
    os.set_inheritable(fds[0], False)
    return fds[0]


def user_of(peer: socket.socket) -> int:
    """The user id at the other end, as the kernel certifies it."""
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])


def _address(name: str) -> str:
    return f"\0unisono-{name}"
