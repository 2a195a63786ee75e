"""MpiMessages: the tagged messages of one MPI communicator.

Its one idea: a receive never hands MPI an array before the length of the message is known (a matched probe comes
first): Open MPI 5 writes past the end of an array that is shorter than a large message from the same node.

    mail = MpiMessages(comm, wait_for); mail.irecv(array, source=1, tag=0).wait()

Limits: a message moves on only while somebody tests, waits or probes; it knows no time-out, `wait_for` does.
"""

from collections import deque
from collections.abc import Callable
from typing import TypeAlias, final

import numpy as np

from unisono.comm.base import ANY, Array, Envelope, Request, matches, wrong_length
from unisono.comm.checked_base import as_bytes
from unisono.comm.mpi.library import MPI, call, spec

Wait: TypeAlias = Callable[[Request, str, int, int], None]
"""wait_for(request, verb, peer, tag): polls a request until it is done or time is up."""


@final
class MpiMessages:
    """The messages of one MPI communicator."""

    def __init__(self, comm: MPI.Intracomm, wait_for: Wait) -> None:
        self._comm, self.wait_for = comm, wait_for
        self.rank = comm.Get_rank()
        self._wanted: dict[tuple[int, int], deque[_Receiving]] = {}

    def isend(self, array: Array, dest: int, tag: int) -> "_Sending":
        data = as_bytes(array)
        return _Sending(self.wait_for, call(self._comm.Isend, spec(data, data.size), dest, tag), dest, tag)

    def irecv(self, array: Array, source: int, tag: int) -> "_Receiving":
        receiving = _Receiving(self, as_bytes(array), source, tag)
        self._wanted.setdefault((source, tag), deque()).append(receiving)
        return receiving

    def probe(self, source: int, tag: int) -> Envelope | None:
        for pair in [pair for pair, queue in self._wanted.items() if queue]:
            self.match(*pair)
        status = MPI.Status()
        wild = (MPI.ANY_SOURCE if source == ANY else source, MPI.ANY_TAG if tag == ANY else tag)
        # A message of a collective that others have entered already may hide one behind it until we enter, too.
        if not call(self._comm.Iprobe, *wild, status) or not matches(tag, status.Get_tag()):
            return None
        return Envelope(status.Get_source(), status.Get_tag(), status.Get_elements(MPI.BYTE))

    def match(self, source: int, tag: int) -> None:
        """Gives messages that have come to the receives that were posted for them, oldest first."""
        queue = self._wanted[source, tag]
        status = MPI.Status()
        while queue and (message := call(self._comm.Improbe, source, tag, status)) is not None:
            queue.popleft().start(message, status.Get_elements(MPI.BYTE))


@final
class _Sending(Request):
    def __init__(self, wait_for: Wait, request: MPI.Request, dest: int, tag: int) -> None:
        self._wait_for, self._request, self._dest, self._tag = wait_for, request, dest, tag

    def test(self) -> bool:
        return bool(call(self._request.Test))

    def wait(self) -> None:
        self._wait_for(self, "a send to", self._dest, self._tag)


@final
class _Receiving(Request):
    def __init__(self, mail: MpiMessages, data: Array, source: int, tag: int) -> None:
        self._mail, self._data, self._source, self._tag = mail, data, source, tag
        self._request: MPI.Request | None = None
        self._found = data.size

    def start(self, message: MPI.Message, nbytes: int) -> None:
        """Takes the message, even one that does not fit: its sender shall not wait for ever."""
        self._found = nbytes
        target = self._data if nbytes == self._data.size else np.empty(nbytes, np.uint8)
        self._request = call(message.Irecv, spec(target, nbytes))

    def test(self) -> bool:
        if self._request is None:
            self._mail.match(self._source, self._tag)
        if self._request is None or not call(self._request.Test):
            return False
        if self._found != self._data.size:
            raise wrong_length(self._mail.rank, self._source, self._tag, self._found, self._data.size)
        return True

    def wait(self) -> None:
        self._mail.wait_for(self, "a receive from", self._source, self._tag)
