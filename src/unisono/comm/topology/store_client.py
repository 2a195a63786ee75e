"""StoreClient: one connection to a `StoreServer`, proved from both sides before anything is asked.

    client = StoreClient.connect("10.0.0.1", 29500, secret, timeout_s=60.0)
    client.ask(10.0, b"set", b"roll/1", card)

The one idea: what answers with certainty (another secret, another version, another program) ends the attempt at once;
silence and closed connections, as of a machine that starts, or that strangers keep busy, are tried again until time is
up. Several threads may ask; one after the other is served.

Limits: after an error the connection is not used again, since what comes next may be an older answer.
"""

import socket
import threading
import time
from typing import Self, final

from unisono.comm.topology.authentication import (
    HELLO_BYTES,
    MAGIC,
    REPLY_BYTES,
    Channel,
    Hello,
    Refused,
    Secret,
    respond,
)
from unisono.comm.topology.store_server import frame, frame_length, unpack

_TRY_S = 10.0
"""For one handshake; a machine may be busy."""
_AGAIN_S = 0.05
_GRACE_S = 10.0
"""Beyond the time that the server was given to answer, at least: a machine may stall."""


class StoreError(RuntimeError):
    """The store cannot be asked any more, or refused a request."""


@final
class StoreTimeout(StoreError):
    """What was waited for did not come."""


@final
class Unreachable(OSError):
    """There was no connection in time; the text is the last reason."""


@final
class StoreClient:
    """See `connect`."""

    def __init__(self, line: socket.socket, channel: Channel, grace_s: float) -> None:
        self._line, self._channel, self._grace_s = line, channel, grace_s
        self._lock = threading.Lock()
        self._broken = ""

    @classmethod
    def connect(cls, host: str, port: int, secret: Secret, timeout_s: float) -> Self:
        """`Refused` if the other side is the wrong one, or refuses this one; `Unreachable` if there is none in time.

        Whoever waits so long for a server to come waits as long for one that stalls later.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                line, channel = _try(host, port, secret, max(deadline - time.monotonic(), _AGAIN_S))
                return cls(line, channel, max(timeout_s, _GRACE_S))
            except UnicodeError:
                raise Unreachable("it is no host name") from None
            except OSError as error:  # a name may be unknown, a machine be starting, a program not listen yet
                reason = error.strerror or str(error)
            if time.monotonic() + _AGAIN_S > deadline:
                raise Unreachable(reason)
            time.sleep(_AGAIN_S)

    def ask(self, wait_s: float, *fields: bytes) -> list[bytes]:
        """The answer's fields. wait_s: how long the server itself may wait before it answers."""
        with self._lock:
            if self._broken:
                raise StoreError(self._broken)
            try:
                deadline = time.monotonic() + wait_s + self._grace_s
                _send(self._line, frame(self._channel, *fields), deadline)
                length = frame_length(_receive(self._line, 4, deadline))
                status, *values = unpack(self._channel.unseal(_receive(self._line, length, deadline)))
            except (OSError, Refused, ValueError) as error:
                self._broken = f"the store is gone: {error}"
                self._line.close()
                raise StoreError(self._broken) from None
            except BaseException:  # KeyboardInterrupt: the answer is still on its way
                self._broken = "the store is gone: a request to it was interrupted"
                self._line.close()
                raise
        if status == b"late":
            keys = b", ".join(fields[2:]).decode(errors="replace")
            raise StoreTimeout(f"Timed out after {wait_s:g} s waiting for {keys}")
        if status != b"ok":
            raise StoreError(f"the store refused a request: {b''.join(values).decode(errors='replace')}")
        return values

    def close(self) -> None:
        """Nothing can be asked after it."""
        self._broken = self._broken or "the store is closed"
        self._line.close()


def _try(host: str, port: int, secret: Secret, timeout_s: float) -> tuple[socket.socket, Channel]:
    deadline = time.monotonic() + min(timeout_s, _TRY_S)
    line = socket.create_connection((host, port), max(deadline - time.monotonic(), _AGAIN_S))
    try:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = _receive(line, len(MAGIC), deadline)
        if head != MAGIC:
            raise Refused("the program that listens there is not unisono")
        hello = Hello.parse(head + _receive(line, HELLO_BYTES - len(MAGIC), deadline))
        answer, claim = respond(secret, hello, socket.gethostname())
        _send(line, answer, deadline)
        return line, claim.check(_receive(line, REPLY_BYTES, deadline))
    except BaseException:
        line.close()
        raise


def _send(line: socket.socket, data: bytes, deadline: float) -> None:
    line.settimeout(max(deadline - time.monotonic(), 0.001))
    line.sendall(data)


def _receive(line: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        line.settimeout(max(deadline - time.monotonic(), 0.001))
        found = line.recv(size - len(data))
        if not found:
            raise ConnectionResetError("it closed the connection")
        data += found
    return bytes(data)
