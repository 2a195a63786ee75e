"""Behaviour added by wrapping a communicator, never by changing one.

    counted = Counted(comm); all_reduce(counted, x, algorithm="ring"); counted.sent_bytes

`Wrapper` passes everything on; a subclass overrides what it watches. Collectives of the backend itself (`native`) are
not seen as messages: what they send is their own affair.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import final

from unisono.comm.base import ANY, Array, Communicator, Envelope, Request


class Wrapper(Communicator):
    """Passes every call on to `inner`."""

    def __init__(self, inner: Communicator) -> None:
        self.inner = inner
        self.rank, self.size = inner.rank, inner.size
        self.timeout_s, self.transport = inner.timeout_s, inner.transport
        self.address, self.join_s = inner.address, inner.join_s

    def isend(self, array: Array, dest: int, tag: int = 0) -> Request:
        return self.inner.isend(array, dest, tag)

    def irecv(self, array: Array, source: int, tag: int = 0) -> Request:
        return self.inner.irecv(array, source, tag)

    def probe(self, source: int = ANY, tag: int = ANY) -> Envelope | None:
        return self.inner.probe(source, tag)

    def send(self, array: Array, dest: int, tag: int = 0) -> None:
        self.inner.send(array, dest, tag)

    def recv(self, array: Array, source: int, tag: int = 0) -> None:
        self.inner.recv(array, source, tag)

    def sendrecv(self, outgoing: Array, dest: int, incoming: Array, source: int, tag: int = 0) -> None:
        self.inner.sendrecv(outgoing, dest, incoming, source, tag)

    def all_reduce(self, array: Array, op: str = "sum") -> None:
        self.inner.all_reduce(array, op)

    def broadcast(self, array: Array, root: int = 0) -> None:
        self.inner.broadcast(array, root)

    def all_gather(self, array: Array) -> Array:
        return self.inner.all_gather(array)

    def gather(self, array: Array, root: int = 0) -> Array | None:
        return self.inner.gather(array, root)

    def barrier(self) -> None:
        self.inner.barrier()

    def agree(self, what: str, *values: int) -> None:
        self.inner.agree(what, *values)

    def split(self, colour: int) -> Communicator:
        """What comes out is not wrapped."""
        return self.inner.split(colour)

    def progress(self) -> None:
        self.inner.progress()

    def abort_peers(self, error: BaseException) -> None:
        self.inner.abort_peers(error)

    def announce_failure(self, words: bytes) -> None:
        self.inner.announce_failure(words)

    def failure_notices(self) -> list[bytes]:
        return self.inner.failure_notices()

    def close(self) -> None:
        self.inner.close()


class Sending(Wrapper):
    """Calls `before_sending` for every message that this rank sends, by whichever call."""

    @abstractmethod
    def before_sending(self, array: Array) -> None: ...

    def isend(self, array: Array, dest: int, tag: int = 0) -> Request:
        self.before_sending(array)
        return super().isend(array, dest, tag)

    def send(self, array: Array, dest: int, tag: int = 0) -> None:
        self.before_sending(array)
        super().send(array, dest, tag)

    def sendrecv(self, outgoing: Array, dest: int, incoming: Array, source: int, tag: int = 0) -> None:
        self.before_sending(outgoing)
        super().sendrecv(outgoing, dest, incoming, source, tag)


@final
class Counted(Sending):
    """Counts the bytes of the point-to-point messages that this rank sends."""

    def __init__(self, inner: Communicator) -> None:
        super().__init__(inner)
        self.sent_bytes = 0

    def before_sending(self, array: Array) -> None:
        self.sent_bytes += array.nbytes


@final
class Faulty(Sending):
    """Calls `fault` before the `at`-th message this rank sends (1 is the first): a plan for fault tests."""

    def __init__(self, inner: Communicator, at: int, fault: Callable[[], None]) -> None:
        super().__init__(inner)
        self._left = at
        self._fault = fault

    def before_sending(self, array: Array) -> None:
        self._left -= 1
        if self._left == 0:
            self._fault()
