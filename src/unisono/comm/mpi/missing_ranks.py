"""MissingRanks: how a rank that waits in vain learns who else waits, and so who does not.

Its one idea: whoever has waited a while in collective n tells everybody "I wait in n"; whoever hears that while he
waits in n himself answers at once. When time is up, the ranks that never wrote are the missing ones. Nobody writes in
a collective that goes as usual, so it costs nothing there.

    notices = MissingRanks(mail, rank, size)       # mail: messages that nobody else uses
    look = notices.watch(n, timeout_s)        # call look() now and then while waiting
    notices.missing(n)

Limits: exact as long as a notice travels faster than the rest of the time-out. Notices that come after their collective
ended lie unread until the next long wait: a few dozen bytes for each.
"""

import time
from collections.abc import Callable
from typing import Protocol, final

import numpy as np

from unisono.comm.base import ANY, Array, Envelope, Request


class TaggedMail(Protocol):
    """The part of a communicator that notices need; short messages must leave without waiting for the receiver."""

    def isend(self, array: Array, dest: int, tag: int) -> Request: ...

    def irecv(self, array: Array, source: int, tag: int) -> Request: ...

    def probe(self, source: int, tag: int) -> Envelope | None: ...


@final
class MissingRanks:
    """One rank's side; see the module's docstring."""

    def __init__(self, mail: TaggedMail, rank: int, size: int) -> None:
        self._mail = mail
        self._peers = [peer for peer in range(size) if peer != rank]
        self._heard = dict.fromkeys(self._peers, -1)
        self._written = -1
        self._leaving: list[Request] = []

    def watch(self, number: int, timeout_s: float) -> Callable[[], None]:
        """To be called now and then while waiting in collective `number`."""
        patience_ends = time.monotonic() + min(1.0, timeout_s / 4)

        def look() -> None:
            self._listen()
            if self._written < number and (time.monotonic() > patience_ends or number in self._heard.values()):
                self._write(number)

        return look

    def missing(self, number: int) -> list[int]:
        """The ranks that have not written that they wait in collective `number`."""
        self._listen()
        return [peer for peer in self._peers if self._heard[peer] < number]

    def _write(self, number: int) -> None:
        self._written = number
        words = np.array([number], np.int64)
        self._leaving = [request for request in self._leaving if not request.test()]
        self._leaving += [self._mail.isend(words, peer, 0) for peer in self._peers]

    def _listen(self) -> None:
        words = np.zeros(1, np.int64)
        while (found := self._mail.probe(ANY, ANY)) is not None:
            request = self._mail.irecv(words, found.source, 0)
            while not request.test():
                pass
            self._heard[found.source] = int(words[0])
