"""Pieces of work that hand over: who runs when, who is told what, and what happens when one of them fails."""

import gc
import signal
import threading
from functools import partial
from itertools import product as products

import pytest

from unisono.errors import UserError
from unisono.models.torch.cooperative_threads import CooperativeThreads


def walk_all(turns: CooperativeThreads, meetings: list[int]) -> list:
    """As many walks as numbers of meetings; what they told, in order."""
    told = []
    turns.run([partial(walk, turns, number, count, told) for number, count in enumerate(meetings)])
    return sorted(told)


def walk(turns: CooperativeThreads, number: int, meetings: int, told: list) -> None:
    """Adds its number to a sum at every meeting; what came out is told."""
    total = 0
    for meeting in range(meetings):
        total += turns.combine(meeting, (number + 1) * 10**meeting, sum)
    told.append((number, total))


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_all_meet_and_know_the_same(count):
    turns = CooperativeThreads()
    for meetings in (0, 1, 4):
        expected = sum(range(1, count + 1)) * sum(10**meeting for meeting in range(meetings))
        assert walk_all(turns, [meetings] * count) == [(number, expected) for number in range(count)]


def test_one_at_a_time_and_what_all_wait_for_is_done_once():
    turns, running, most, finished = CooperativeThreads(), set(), [], []

    def work(number: int) -> None:
        for meeting in range(3):
            running.add(number)
            most.append(len(running))
            running.discard(number)
            turns.combine(meeting, number, finished.append)

    turns.run([lambda j=j: work(j) for j in range(4)])
    assert set(most) == {1}
    assert finished == [[0, 1, 2, 3]] * 3  # in their order, whoever came last


def test_who_stops_keeps_and_who_goes_on_is_back():
    turns, shard_state, kept, seen = CooperativeThreads(), [""], {}, []

    def work(number: int) -> None:
        shard_state[0] = f"of {number}"
        for meeting in range(3):
            turns.combine(meeting, None, len)
            seen.append(shard_state[0] == f"of {number}")

    def keep(number: int) -> None:
        kept[number] = shard_state[0]

    def back(number: int) -> None:
        shard_state[0] = kept[number]

    turns.run([lambda j=j: work(j) for j in range(3)], keep, back)
    assert seen == [True] * 9
    assert turns.spent_s > 0


def test_outside_of_a_run_there_is_one():
    assert CooperativeThreads().combine(7, 5, sum) == 5


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_an_exception_ends_all_and_is_the_callers(kind):
    turns = CooperativeThreads()

    def work(number: int, failing: int, at: int, begun: list, ended: list) -> None:
        begun.append(number)
        try:
            for meeting in range(3):
                if number == failing and meeting == at:
                    raise kind("mine")
                turns.combine(meeting, 1, sum)
            if number == failing:
                raise kind("mine")
        finally:
            ended.append(number)

    for failing, at in products((0, 1, 3), (0, 2, 3)):
        begun, ended = [], []
        with pytest.raises(kind, match="mine"):
            turns.run([partial(work, number, failing, at, begun, ended) for number in range(4)])
        assert sorted(begun) == sorted(ended)
        assert len(walk_all(turns, [2] * 4)) == 4  # it can be used again


def test_a_signal_while_others_run_ends_them_first():
    """The caller waits, another piece runs: what the signal raises is not lost, nor is anybody left running."""
    turns, ended = CooperativeThreads(), []

    def interrupted() -> None:
        try:
            turns.combine(0, 1, sum)
        finally:
            ended.append("caller")

    def other() -> None:
        try:
            signal.raise_signal(signal.SIGUSR1)  # handled by the main thread, whenever it runs
            turns.combine(0, 1, sum)
            turns.combine(1, 1, sum)
        finally:
            ended.append("other")

    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    try:
        with pytest.raises((KeyboardInterrupt, UserError)):
            turns.run([interrupted, other])
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert sorted(ended) == ["caller", "other"]


def test_an_exception_of_the_meeting_itself():
    turns = CooperativeThreads()

    def refuse(values: list) -> None:
        raise LookupError("regrouped")

    with pytest.raises(LookupError, match="regrouped"):
        turns.run([lambda: turns.combine(0, 1, refuse)] * 3)


@pytest.mark.parametrize("meetings", [[2, 3, 3], [3, 2, 3], [3, 3, 2], [0, 1], [1, 0]])
def test_those_who_meet_less_often_are_refused_instead_of_waited_for(meetings):
    with pytest.raises(UserError, match="do not pass the same batch norms"):
        walk_all(CooperativeThreads(), meetings)


def test_those_who_meet_elsewhere_are_refused():
    turns = CooperativeThreads()
    with pytest.raises(UserError, match="do not pass the same batch norms"):
        turns.run([lambda j=j: turns.combine(j, 1, sum) for j in range(2)])


def test_threads_are_kept_and_end_with_their_owner():
    def alive() -> int:
        gc.collect()
        return sum(thread.name == "unisono turns" for thread in threading.enumerate())

    turns = CooperativeThreads()
    for _ in range(3):
        walk_all(turns, [2] * 4)
    assert alive() == 3
    del turns
    assert alive() == 0
