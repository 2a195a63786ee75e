"""Who waits is known to the others, and who does not is missing: three ranks in one thread, over mail in memory."""

from collections import deque

import numpy as np

from unisono.comm.base import Array, Envelope, Request
from unisono.comm.mpi.missing_ranks import MissingRanks

LONG_S = 1e9
"""So long that nobody loses patience by himself."""


class Done(Request):
    def test(self) -> bool:
        return True

    def wait(self) -> None:
        pass


class Memory:
    """One rank's mail; all letters lie in one dictionary."""

    def __init__(self, rank: int, letters: dict[int, deque[tuple[int, Array]]]) -> None:
        self.rank, self.letters = rank, letters

    def isend(self, array: Array, dest: int, tag: int) -> Request:
        self.letters[dest].append((self.rank, array.copy()))
        return Done()

    def irecv(self, array: Array, source: int, tag: int) -> Request:
        found, letter = self.letters[self.rank].popleft()
        assert found == source
        array[:] = letter
        return Done()

    def probe(self, source: int, tag: int) -> Envelope | None:
        mine = self.letters[self.rank]
        return Envelope(mine[0][0], 0, mine[0][1].nbytes) if mine else None


def three_ranks() -> tuple[list[MissingRanks], dict[int, deque[tuple[int, np.ndarray]]]]:
    letters: dict[int, deque[tuple[int, Array]]] = {rank: deque() for rank in range(3)}
    return [MissingRanks(Memory(rank, letters), rank, 3) for rank in range(3)], letters


def test_nobody_writes_before_patience_ends():
    ranks, letters = three_ranks()
    ranks[0].watch(1, LONG_S)()
    assert not any(letters.values())


def test_who_comes_late_answers_at_once_and_is_not_missing():
    ranks, _ = three_ranks()
    ranks[0].watch(1, timeout_s=0.0)()
    ranks[1].watch(1, LONG_S)()  # has only just come, but hears rank 0
    assert ranks[0].missing(1) == [2]
    assert ranks[1].missing(1) == [2]


def test_a_notice_is_written_once_per_collective():
    ranks, letters = three_ranks()
    for number in (1, 2):
        look = ranks[0].watch(number, timeout_s=0.0)
        look()
        look()
    assert len(letters[1]) == len(letters[2]) == 2


def test_old_notices_do_not_count():
    ranks, _ = three_ranks()
    ranks[1].watch(1, timeout_s=0.0)()
    ranks[2].watch(2, timeout_s=0.0)()
    ranks[0].watch(2, LONG_S)()
    assert ranks[0].missing(2) == [1]
