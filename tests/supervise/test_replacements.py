"""Replacements on their way: who sets out when, who counts, and how often one is tried."""

import pytest

from unisono.supervise import replacements as module
from unisono.supervise.replacements import AT_ONCE, FIRST_PAUSE_S, MOST_FAILURES, MOST_PAUSE_S, Replacements


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


def books(replacements: Replacements) -> tuple[list[int], list[int], bool]:
    return replacements.coming, replacements.ready, replacements.wanted


def test_from_when_one_is_wanted_until_it_is_a_member(clock):
    replacements = Replacements(respawn=True)
    replacements.want([2, 0])
    assert replacements.due() == [2, 0]
    assert books(replacements) == ([], [], True)
    replacements.mark_started(2)
    assert replacements.due() == [0]
    replacements.mark_started(0)
    assert books(replacements) == ([2, 0], [], False)
    replacements.get_ready(0)
    assert books(replacements) == ([2, 0], [0], False)
    replacements.join(0)
    assert books(replacements) == ([2], [], False)


def test_nobody_is_replaced_who_shall_not_be(clock):
    replacements = Replacements(respawn=False)
    replacements.want([1])
    assert (replacements.due(), replacements.wanted) == ([], False)
    assert not replacements.fail(1, alone=False)
    assert not replacements.wanted


def test_whoever_is_not_on_its_way_is_not_ready(clock):
    replacements = Replacements(respawn=True)
    replacements.get_ready(1)  # a member, or one that has just been forgotten
    assert books(replacements) == ([], [], False)


def fail(replacements: Replacements, clock: Clock, pause_s: float) -> None:
    """One dies though it was ready, and the next one sets out after `pause_s`, not before."""
    replacements.mark_started(1)
    replacements.get_ready(1)
    assert replacements.fail(1, alone=False)
    assert replacements.coming == []
    if pause_s:
        clock.now_s += 0.999 * pause_s
        assert replacements.due() == []
        clock.now_s += 0.002 * pause_s
    assert replacements.due() == [1]


def test_one_that_does_not_live_to_join_is_tried_again_later_and_later(clock):
    replacements = Replacements(respawn=True)
    replacements.want([1])
    longer = [min(MOST_PAUSE_S, FIRST_PAUSE_S * 4**number) for number in range(1, 8)]
    assert longer[-1] == MOST_PAUSE_S
    for pause_s in [0.0] * AT_ONCE + longer:
        fail(replacements, clock, pause_s)


def test_one_that_joined_is_tried_at_once_the_next_time(clock):
    replacements = Replacements(respawn=True)
    replacements.want([1])
    for pause_s in [0.0] * AT_ONCE + [4 * FIRST_PAUSE_S]:
        fail(replacements, clock, pause_s)
    replacements.mark_started(1)
    replacements.join(1)
    replacements.want([1])
    fail(replacements, clock, 0.0)


def test_when_nobody_else_is_left_it_is_tried_a_few_times_only(clock):
    replacements = Replacements(respawn=True)
    replacements.want([1])
    tried = []
    for _ in range(MOST_FAILURES):
        clock.now_s += MOST_PAUSE_S
        replacements.mark_started(1)
        tried.append(replacements.fail(1, alone=True))
    assert tried == [True] * (MOST_FAILURES - 1) + [False]
    assert not replacements.wanted
