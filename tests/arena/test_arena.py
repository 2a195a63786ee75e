"""Arena: whoever creates it, attaches to it or joins it has the same state."""

import math
import os
import threading
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pytest

from unisono.arena.arena import Arena, begin
from unisono.arena.membership import protocol
from unisono.arena.membership.protocol import COMMIT, READY, View
from unisono.arena.memory.segment import Sections, Segment


class Numbers:
    def __init__(self, segment: Segment, sections: Sections) -> None:
        self.words = sections.words(segment, "words")
        self.values = sections.array(segment, "values")


@dataclass(frozen=True)
class Plan:
    size: int = 2

    @property
    def sections(self) -> Sections:
        words = protocol.words_needed(self.size), np.dtype(np.int64)
        return Sections({"words": words, "values": ((2, 3), np.dtype(np.float32))})

    def over(self, segment: Segment) -> Numbers:
        return Numbers(segment, self.sections)


class Threads:
    """A group whose ranks are threads of this process."""

    size, timeout_s = 2, 30.0

    def __init__(self, rank: int, segment: Segment, first_done: threading.Event) -> None:
        self.rank, self._segment, self._first_done = rank, segment, first_done

    def share_segment(self, nbytes: int) -> Segment:
        assert nbytes == self._segment.nbytes
        return Segment.attach(os.dup(self._segment.fd))

    def run_on_first(self, work) -> None:
        if self.rank == 0:
            work()
            self._first_done.set()
        assert self._first_done.wait(30)


def test_who_attaches_sees_what_the_creator_wrote_after_both_have_closed_it():
    with closing(Arena.create(Plan())) as made:
        made.state.values[1] = 1, 2, 3
        with closing(Arena.attach(os.dup(made.fd), Plan())) as attached:
            begin(made.state.words, 2, position=5)
    attached.state.values[0, 0] = 7
    assert made.state.values.tolist() == [[7, 0, 0], [1, 2, 3]]
    member = attached.member(1)
    assert member.view == View(1, (0, 1), 5, COMMIT, ())
    assert member.timeout_s == math.inf


def test_a_member_waits_for_a_view_later_than_the_one_it_is_told():
    with closing(Arena.create(Plan())) as arena:
        begin(arena.state.words, 2)
    with pytest.raises(TimeoutError):
        arena.member(0, timeout_s=0.0, after=1)


def test_ranks_that_join_find_what_the_first_one_filled_in():
    found, first_done = {}, threading.Event()

    def fill(state: Numbers) -> None:
        state.values[...] = 4

    def join(rank: int, segment: Segment) -> None:
        arena, member = Arena.join(Threads(rank, segment, first_done), Plan(), fill, position=3)
        arena.close()
        member.barrier(4, READY)
        found[rank] = member.slot, member.view.position, member.timeout_s, float(arena.state.values.sum())

    with closing(Segment.create(Plan().sections.nbytes)) as segment:
        threads = [threading.Thread(target=join, args=(rank, segment)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert found == {0: (0, 3, 30.0, 24.0), 1: (1, 3, 30.0, 24.0)}
