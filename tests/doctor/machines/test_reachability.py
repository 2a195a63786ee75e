"""Two machines that try a connection: nobody else is taken for either."""

import socket
import threading
import time

import pytest

from unisono.doctor.machines.message_board import StoreBoard
from unisono.doctor.machines.reachability import listen, try_connection
from unisono.errors import CommError, CommTimeout

PATIENCE_S = 30.0


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
