"""RankMessenger: short news between any two ranks, and a line between them, while others may have fallen silent.

    board.tell(0, {"host": "n1"}); news = board.hear(3, timeout_s=5.0)          # None: nothing came
    with board.line(3, patience_s=5.0) as line: ...                             # both ends ask for it

The one idea: nothing here is collective, so one rank that does not answer costs the others a time-out and nothing else.
Over MPI (or any communicator) news are messages that are polled for; over gloo they are entries of the store, and each
line is a process group of two of its own, so that a pair that cannot connect breaks nobody else's connections.

Limits: with gloo everybody must reach the store, which the first rank (or torchrun) serves.
"""

import json
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, final

import numpy as np

from unisono.arena.sync.waiting import wait_until
from unisono.comm.base import Communicator, Request
from unisono.comm.topology.rendezvous import RendezvousStore
from unisono.doctor.machines.link import Link
from unisono.doctor.machines.reachability import listen, try_connection
from unisono.errors import CommError
from unisono.parsing import parse_json

TALK = 1
"""The tag of news."""
_LOOK_S = 0.005
_NEWS_BYTES = 1 << 20


def _read(news: bytes, source: int) -> Any:
    try:
        return parse_json(news, most_bytes=_NEWS_BYTES)
    except ValueError as error:
        raise CommError(f"what rank {source} told is not valid: {error}") from None


class RankMessenger(ABC):
    """See the module's docstring."""

    rank: int
    size: int
    transport: str
    address: str = ""
    """By which others reach this rank, where that is known."""

    @abstractmethod
    def tell(self, dest: int, news: Any) -> None:
        """Leaves news (JSON) for a rank; does not wait for it."""

    @abstractmethod
    def hear(self, source: int, timeout_s: float) -> Any:
        """The next news from a rank; None if nothing comes in time."""

    @abstractmethod
    def line(self, peer: int, patience_s: float) -> AbstractContextManager[Link]:
        """To one other rank, which asks for it, too. A `CommError` if there is no way, or no answer."""

    def close(self) -> None:  # noqa: B027  (nothing to do is a good answer)
        """When everybody is still there."""

    def abort_peers(self, error: BaseException) -> None:  # noqa: B027
        """Called instead, when somebody is not, or this rank leaves because of `error`: nobody shall wait."""


@final
class MessageBoard(RankMessenger):
    """Over a communicator, whose collectives are not used."""

    def __init__(self, comm: Communicator) -> None:
        self.rank, self.size, self.transport = comm.rank, comm.size, comm.transport
        self._comm = comm
        self._leaving: list[tuple[Request, np.ndarray]] = []

    def tell(self, dest: int, news: Any) -> None:
        words = np.frombuffer(json.dumps(news).encode(), np.uint8)
        self._leaving = [(request, kept) for request, kept in self._leaving if not request.test()]
        self._leaving.append((self._comm.isend(words, dest, TALK), words))

    def hear(self, source: int, timeout_s: float) -> Any:
        if not wait_until(lambda: self._comm.probe(source, TALK) is not None, timeout_s):
            return None
        waiting = self._comm.probe(source, TALK)
        assert waiting is not None
        words = np.empty(waiting.nbytes, np.uint8)
        arriving = self._comm.irecv(words, source, TALK)
        return _read(words.tobytes(), source) if wait_until(arriving.test, max(timeout_s, _LOOK_S)) else None

    @contextmanager
    def line(self, peer: int, patience_s: float) -> Iterator[Link]:
        yield Link(self._comm, peer, patience_s)

    def close(self) -> None:
        self._comm.close()

    def abort_peers(self, error: BaseException) -> None:
        self._comm.abort_peers(error)


@final
class StoreBoard(RankMessenger):
    """Over a torch store that all reach. address: of this machine, for the others to connect to."""

    transport = "gloo"

    def __init__(self, store: RendezvousStore, rank: int, size: int, address: str) -> None:
        self.rank, self.size, self.address = rank, size, address
        self._store = store
        self._told: Counter[int] = Counter()
        self._heard: Counter[int] = Counter()

    def tell(self, dest: int, news: Any) -> None:
        self._told[dest] += 1
        try:
            self._store.set(f"news/{self.rank}/{dest}/{self._told[dest]}", json.dumps(news))
        except RuntimeError as error:
            raise CommError(f"rank {dest} cannot be told anything: {error}", rank=self.rank) from error

    def hear(self, source: int, timeout_s: float) -> Any:
        key = f"news/{source}/{self.rank}/{self._heard[source] + 1}"
        deadline = time.monotonic() + timeout_s
        try:
            while not self._store.check([key]):
                if time.monotonic() > deadline:
                    return None
                time.sleep(_LOOK_S)
            self._heard[source] += 1
            news = self._store.get(key)
            self._store.delete_key(key)  # of many ranks, they would fill the store
        except RuntimeError as error:
            raise CommError("the store is gone, and with it whoever served it", rank=self.rank) from error
        return _read(news, source)

    @contextmanager
    def line(self, peer: int, patience_s: float) -> Iterator[Link]:
        from unisono.comm.gloo.communicator import pair

        low, high = sorted((self.rank, peer))
        me = int(self.rank == high)
        try:
            if me:
                try_connection(self._store, f"door/{low}/{high}", patience_s)
            else:
                listen(self._store, f"door/{low}/{high}", self.address, patience_s)
        except RuntimeError as error:
            raise CommError(f"rank {peer} cannot be told where to knock: {error}", rank=self.rank) from error
        with pair(self._store, f"line/{low}/{high}", me, patience_s, self.address) as comm:
            yield Link(comm, 1 - me, patience_s, own=True)
