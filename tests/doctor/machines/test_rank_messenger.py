"""News and lines between ranks that meet in a store, which must not fill up with them."""

import socket
import subprocess
import sys
import threading
import time

import pytest

from support.needs import needs_torch
from unisono.comm.topology.store_client import StoreError
from unisono.doctor.machines.rank_messenger import StoreBoard, listen, try_connection
from unisono.environment.os_environ import child_environment
from unisono.errors import CommError, CommTimeout

SCRIPT = """
from threading import Thread
from unisono.comm.topology.authentication import Secret
from unisono.comm.gloo.store import prefixed, reach_store, serve_store
from unisono.doctor.machines.rank_messenger import StoreBoard

secret = Secret(b"the secret of these tests", "the test")
served = serve_store(["127.0.0.1"], 0, secret, "rank 0")
reached = reach_store("127.0.0.1", served.port, secret, 30.0, "rank 1")
boards = [StoreBoard(prefixed("unisono/1", store), n, 3, "127.0.0.1") for n, store in enumerate((served, reached))]
for number in range(13):
    boards[1].tell(0, {"number": number})
    assert boards[0].hear(1, 30.0) == {"number": number}

def meet(board):
    with board.line(1 - board.rank, 30.0):
        met.append(board.rank)

met = []
other = Thread(target=meet, args=(boards[1],))
other.start()
meet(boards[0])
other.join()
assert sorted(met) == [0, 1], met
print(served.num_keys())
"""
PATIENCE_S = 30.0


@needs_torch
def test_neither_news_nor_lines_leave_anything_in_the_store():
    words, environment = [sys.executable, "-c", SCRIPT], child_environment(threads=1)
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stdout) == (0, "0\n"), ended.stderr


class Full:
    """A store that takes nothing any more."""

    def set(self, key: str, value: str) -> None:
        raise StoreError("the store refused a request: the store is full")


def test_a_store_that_takes_nothing_is_told():
    board = StoreBoard(Full(), 0, 3, "127.0.0.1")
    with pytest.raises(CommError, match=r"rank 0: rank 2 cannot be told anything: .* the store is full"):
        board.tell(2, {})
    with (
        pytest.raises(CommError, match=r"rank 0: rank 1 cannot be told where to knock: .* the store is full"),
        board.line(1, 30.0),
    ):
        pass


class Board(dict[str, str]):
    """As much of a store as is needed."""

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def get(self, key: str) -> bytes:  # type: ignore[override]
        return self[key].encode()

    def multi_get(self, keys: list[str]) -> list[bytes]:
        raise NotImplementedError

    def check(self, keys: list[str]) -> bool:
        return all(key in self for key in keys)

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        raise NotImplementedError

    def delete_key(self, key: str) -> bool:
        return self.pop(key, None) is not None


def test_a_stranger_who_knocks_is_not_taken_for_the_other_one():
    board, heard = Board(), []

    def attend() -> None:
        try:
            listen(board, "door", "127.0.0.1", PATIENCE_S)
            heard.append("the right one")
        except CommTimeout as error:
            heard.append(str(error))

    thread = threading.Thread(target=attend)
    thread.start()
    deadline = time.monotonic() + PATIENCE_S
    while not board.check(["door"]) and time.monotonic() < deadline:
        time.sleep(0.001)
    where = "127.0.0.1", int(board["door"].split()[1])
    for word in (b"", b"x" * 32, b"let me in"):
        with socket.create_connection(where, PATIENCE_S) as stranger:
            stranger.sendall(word)
            stranger.shutdown(socket.SHUT_WR)
            assert stranger.recv(1) == b""  # it was sent away
    assert heard == []
    try_connection(board, "door", PATIENCE_S)
    thread.join(PATIENCE_S)
    assert heard == ["the right one"]
    assert board == {}


@pytest.mark.parametrize("told", ["", "127.0.0.1", "n2 80 word", "127.0.0.1 70000 word", "127.0.0.1 x word", "1 2 3 4"])
def test_a_door_that_cannot_be_is_refused(told):
    with pytest.raises(CommError, match="no address, port and word"):
        try_connection(Board(door=told), "door", PATIENCE_S)


@pytest.mark.parametrize("news", ["", "{", "[" * 5000, '"' + "x" * (1 << 20) + '"'], ids=lambda news: news[:10])
def test_news_that_cannot_be_read_are_refused_by_name(news):
    with pytest.raises(CommError, match=r"^what rank 1 told is not valid: "):
        StoreBoard(Board({"news/1/0/1": news}), 0, 2, "127.0.0.1").hear(1, PATIENCE_S)
