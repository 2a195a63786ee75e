"""Homing: who goes where and when; the real calls leave the process on the same cores as before."""

import os
from types import SimpleNamespace

import pytest

from unisono.training import core_spreading as affinity
from unisono.training.core_spreading import OFTEN_S, RARELY_S, SOON_S, CoreAffinity, core_of, go_to


class Machine:
    """Cores and a clock of our own; `moved` lists the masks that were set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.cores, self.moved = 100.0, {0, 1}, []
        monkeypatch.setattr(affinity.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(affinity.os, "sched_getaffinity", lambda pid: self.cores)
        monkeypatch.setattr(affinity.os, "sched_setaffinity", lambda pid, mask: self.moved.append(set(mask)))


@pytest.fixture
def made_up(monkeypatch) -> Machine:
    return Machine(monkeypatch)


def _member(index: int, count: int) -> SimpleNamespace:
    return SimpleNamespace(index=index, count=count, view=SimpleNamespace(number=1))


def test_members_take_turns_on_the_cores_that_are_allowed():
    assert [core_of(index, {7, 3}) for index in range(5)] == [3, 7, 3, 7, 3]


@pytest.mark.parametrize(("index", "count", "moved"), [(3, 4, [{1}, {0, 1}]), (1, 2, [])])
def test_a_rank_that_shares_cores_goes_to_its_own_and_may_leave_it(made_up, index, count, moved):
    CoreAffinity(_member(index, count))()
    assert made_up.moved == moved


def test_a_way_back_that_failed_is_tried_again(made_up):
    home = CoreAffinity(_member(index=3, count=4))
    home()
    made_up.cores, made_up.now = {1}, made_up.now + RARELY_S
    home()
    assert made_up.moved == [{1}, {0, 1}] * 2


def test_often_after_a_change_of_membership_and_rarely_otherwise(made_up):
    machine, member = made_up, _member(index=0, count=3)
    home = CoreAffinity(member)

    def returns_within(seconds: float) -> int:
        before = len(machine.moved) // 2
        for _ in range(round(seconds / 0.001)):
            machine.now += 0.001
            home()
        return len(machine.moved) // 2 - before

    often = returns_within(SOON_S)
    assert often == pytest.approx(SOON_S / OFTEN_S, abs=2)
    assert returns_within(2.0) == pytest.approx(2.0 / RARELY_S, abs=2)
    member.view = SimpleNamespace(number=2)
    assert returns_within(SOON_S) == pytest.approx(often, abs=1)


def test_the_process_may_run_where_it_could_before():
    allowed = os.sched_getaffinity(0)
    for core in allowed:
        go_to({core}, allowed)
        assert os.sched_getaffinity(0) == allowed


def test_it_is_moved_to_that_core():
    allowed = os.sched_getaffinity(0)
    moved = set()
    for core in sorted(allowed) * 20:
        go_to({core}, allowed)
        if _core_now() == core:  # the kernel may have moved it again, but not every time
            moved.add(core)
    assert moved == allowed


def test_a_core_that_was_taken_away_is_no_failure():
    allowed = os.sched_getaffinity(0)
    go_to({max(allowed) + 1000}, allowed)
    assert os.sched_getaffinity(0) == allowed


def _core_now() -> int:
    with open("/proc/self/stat") as file:
        return int(file.read().rpartition(")")[2].split()[36])
