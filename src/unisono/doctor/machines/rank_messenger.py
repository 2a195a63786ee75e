"""RankMessenger: short messages between any two ranks, and a line between them, while others may have fallen silent.

    board.tell(0, {"host": "n1"}); news = board.hear(3, timeout_s=5.0)          # None: nothing came
    with board.line(3, patience_s=5.0) as line: ...                             # both ends ask for it

The one idea: nothing here is collective, so a rank that does not answer costs the others a time-out and nothing else.
Over MPI (or any communicator) messages are polled for. Over gloo they are entries of the store, and each line is a
process group of two of its own, so a pair that cannot connect breaks no other connection. Where a firewall drops
packets, gloo tries to connect for much longer than it was told to; so one of the two first opens a plain connection
(`try_connection`) to the other (`listen`). All that is sent over it is a secret word from the store, which proves that
the right rank connects.

Limits: with gloo every rank must reach the store, which the first rank (or torchrun) serves.
"""

import hmac
import ipaddress
import json
import secrets
import socket
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, final

import numpy as np

from unisono.arena.sync.waiting import wait_until
from unisono.comm.base import Communicator, Request
from unisono.comm.topology.rendezvous import RendezvousStore
from unisono.doctor.machines.link_measurement import Link
from unisono.errors import CommError, CommTimeout
from unisono.parsing import parse_json

TALK = 1
"""The tag of messages."""
_LOOK_S = 0.005
_NEWS_BYTES = 1 << 20
_WORD_BYTES = 16
_SAYING_S = 1.0
"""How long a process that connects may take to send the word; then the next one has a turn."""


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
    """The address by which others reach this rank, where that is known."""

    @abstractmethod
    def tell(self, dest: int, news: Any) -> None:
        """Leaves news (JSON) for a rank; does not wait for it."""

    @abstractmethod
    def hear(self, source: int, timeout_s: float) -> Any:
        """The next news from a rank; None if nothing comes in time."""

    @abstractmethod
    def line(self, peer: int, patience_s: float) -> AbstractContextManager[Link]:
        """A line to one other rank, which asks for it, too. A `CommError` if there is no way, or no answer."""

    def close(self) -> None:  # noqa: B027  (nothing to do is a good answer)
        """Called when all ranks still answer."""

    def abort_peers(self, error: BaseException) -> None:  # noqa: B027
        """Called instead if a rank does not answer, or this rank leaves because of `error`: no rank shall wait."""


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
            self._store.delete_key(key)  # the messages of many ranks would fill the store
        except RuntimeError as error:
            raise CommError("the store is gone, and with it the process that served it", rank=self.rank) from error
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


def listen(board: RendezvousStore, name: str, address: str, timeout_s: float) -> None:
    """Accepts the other rank, once; a `CommTimeout` if it does not connect. name: the same for both, and used once."""
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
    """Opens a connection to the rank that listens, and closes it; a `CommTimeout` if that fails."""
    if not wait_until(lambda: board.check([name]), timeout_s):
        raise CommTimeout(f"nobody listened within {timeout_s:g} s")
    address, port, word = _read_address(board.get(name))
    try:
        with socket.create_connection((address, port), timeout_s) as line:
            line.sendall(word)
    except OSError as error:
        raise CommTimeout(f"{address} cannot be reached: {error.strerror or error}") from error


def _read_address(told: bytes) -> tuple[str, int, bytes]:
    try:
        address, port, word = told.split()
        ipaddress.ip_address(address.decode().partition("%")[0])
        if not 0 < int(port) < 65536:
            raise ValueError
        return address.decode(), int(port), word
    except ValueError:
        raise CommError("what is on the board is no address, port and word to knock with") from None
