"""When a run is given up, and in which words; which ends count, and for how long; when replacements are tried again."""

import signal
from types import SimpleNamespace

import pytest

from unisono.arena.membership.protocol import COMMIT, MOST_VIEWS, READY, View
from unisono.supervise import failure_policy as module
from unisono.supervise.failure_policy import (
    AT_ONCE,
    FIRST_PAUSE_S,
    MOST_FAILURES,
    MOST_PAUSE_S,
    WINDOW_S,
    CrashCounts,
    FailurePolicy,
    Replacements,
)
from unisono.supervise.processes import ChildExit

EXITED, CRASHED, TRAPPED, KILLED = 3 << 8, int(signal.SIGSEGV), int(signal.SIGTRAP), int(signal.SIGKILL)
"""As waitpid gives them."""


def view(*members: int, number: int = 2, reached: int = COMMIT) -> View:
    return View(number=number, members=members, position=6, reached=reached, contributors=members)


def reason(losses: FailurePolicy, now: View, status: int = KILLED, *lost: int) -> str:
    for slot in lost:
        losses.hear(ChildExit(slot, status, answered=False, result=None, failure=None))
    return losses.reason({slot: f"rank {slot} ended" for slot in lost}, now, "step {}".format)


def test_a_death_is_no_reason_unless_nobody_is_left():
    losses = FailurePolicy(most_deaths=9, most_crashes=9)
    assert reason(losses, view(0, 1)) == ""
    assert reason(losses, view(0, 1), KILLED, 2) == ""
    assert reason(losses, view(), KILLED, 0, 1) == "no rank is left: rank 0 ended; rank 1 ended"


def test_deaths_that_do_not_stop(monkeypatch):
    times_s = iter([0.0, 1.0, WINDOW_S + 0.5, WINDOW_S + 1.0])  # the last one is within ten minutes of the second
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(times_s)))
    losses = FailurePolicy(most_deaths=2, most_crashes=0)
    told = [reason(losses, view(0, 1), KILLED, 2) for _ in range(4)]
    assert told == ["", "", "", "3 ranks died within 10 minutes, the last: rank 2 ended"]


def test_a_round_that_ends_whoever_computes_it():
    losses = FailurePolicy(most_deaths=9, most_crashes=3)
    assert reason(losses, view(0, 1), CRASHED, 2) == ""
    assert reason(losses, view(0), CRASHED, 1) == ""
    assert losses.crashes == 2
    assert reason(losses, view(2), CRASHED, 0) == "step 7 ended 3 ranks one after another, the last: rank 0 ended"


def test_a_round_that_ended_all_who_were_left():
    losses = FailurePolicy(most_deaths=9, most_crashes=5)
    told = reason(losses, view(reached=READY), CRASHED, 0, 1)
    assert told == "step 6 ended 2 ranks one after another, the last: rank 0 ended; rank 1 ended"


def test_numbers_of_views_run_out():
    losses = FailurePolicy(most_deaths=9, most_crashes=0)
    assert reason(losses, view(0, number=MOST_VIEWS - 2)) == ""
    assert "numbers have run out" in reason(losses, view(0, number=MOST_VIEWS - 1))


def ended(crashes: CrashCounts, position: int, **statuses: int) -> int:
    """rank0=EXITED, rank2=KILLED ...: all of them lost in one round."""
    lost = {int(name.removeprefix("rank")): status for name, status in statuses.items()}
    for rank, status in lost.items():
        crashes.hear(ChildExit(rank, status, answered=False, result=None, failure=None))
    crashes.note(position, lost)
    return crashes.count


def test_only_ends_that_nobody_else_caused_are_counted():
    crashes = CrashCounts(most=3)
    assert ended(crashes, 7, rank0=EXITED, rank1=KILLED) == 1
    assert ended(crashes, 7, rank1=KILLED) == 1
    assert not crashes.hopeless
    assert ended(crashes, 7, rank1=CRASHED, rank2=TRAPPED) == 3
    assert crashes.hopeless


def test_a_round_that_was_done_after_all_is_forgotten():
    crashes = CrashCounts(most=2)
    assert ended(crashes, 7, rank0=EXITED) == 1
    assert ended(crashes, 8, rank0=EXITED) == 1
    assert not crashes.hopeless


def test_those_who_had_not_joined_are_not_counted():
    crashes = CrashCounts(most=2)
    crashes.hear(ChildExit(1, EXITED, answered=False, result=None, failure=None))
    assert ended(crashes, 7, rank0=CRASHED) == 1
    assert ended(crashes, 7, rank2=KILLED) == 1


def test_without_a_limit_nothing_is_counted():
    crashes = CrashCounts(most=0)
    assert ended(crashes, 7, rank0=EXITED, rank1=EXITED) == 0
    assert not crashes.hopeless


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
