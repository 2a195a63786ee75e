"""When a run that loses ranks is given up, and in which words."""

import signal
from types import SimpleNamespace

from unisono.arena.membership.protocol import COMMIT, MOST_VIEWS, READY, View
from unisono.supervise import failure_policy as module
from unisono.supervise.failure_policy import WINDOW_S, FailurePolicy
from unisono.supervise.processes import ChildExit

KILLED, CRASHED = int(signal.SIGKILL), int(signal.SIGSEGV)


def view(*members: int, number: int = 2, reached: int = COMMIT) -> View:
    return View(number=number, members=members, position=6, reached=reached, contributors=members)


def reason(losses: FailurePolicy, now: View, status: int = KILLED, *lost: int) -> str:
    for slot in lost:
        losses.hear(ChildExit(slot, status, answered=False, result=None, failure=None))
    return losses.reason({slot: f"rank {slot} ended" for slot in lost}, now, "step {}".format)


def test_a_death_is_no_reason():
    losses = FailurePolicy(most_deaths=1, most_crashes=2)
    assert reason(losses, view(0, 1)) == ""
    assert reason(losses, view(0, 1), KILLED, 2) == ""


def test_nobody_is_left():
    losses = FailurePolicy(most_deaths=9, most_crashes=9)
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
