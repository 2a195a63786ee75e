"""News and lines between ranks that meet in a store, which must not fill up with them."""

import subprocess
import sys

import pytest

from support.needs import needs_torch
from unisono.comm.topology.store_client import StoreError
from unisono.doctor.machines.message_board import StoreBoard
from unisono.environment.variables import child_environment
from unisono.errors import CommError

SCRIPT = """
from threading import Thread
from unisono.comm.topology.authentication import Secret
from unisono.comm.gloo.store import prefixed, reach_store, serve_store
from unisono.doctor.machines.message_board import StoreBoard

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
