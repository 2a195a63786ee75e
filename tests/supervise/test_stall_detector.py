"""Who is stuck: the one that everybody waits for. The clock is made up."""

import signal
from typing import Any

import pytest

from unisono import resources
from unisono.arena.membership import protocol
from unisono.arena.membership.protocol import COMMIT, PULSE, READY, pack
from unisono.supervise.processes import ChildExit
from unisono.supervise.stall_detector import FIRST_S, EndCauses, StallDetector

SIZE = 3


class Node:
    """Words and a clock."""

    def __init__(self, monkeypatch: Any, stall_s: float) -> None:
        self.now = 1000.0
        monkeypatch.setattr("unisono.supervise.stall_detector.time.monotonic", lambda: self.now)
        self.words = [0] * protocol.words_needed(SIZE)
        self.stall_detector = StallDetector(self.words, stall_s)

    def reach(self, position: int, phase: int, *slots: int) -> None:
        for slot in slots:
            protocol.arrive(self.words, slot, pack(1, position, phase))

    def after(self, seconds: float) -> list[int]:
        """Who is stuck after so long, looked at ten times a second."""
        found: list[int] = []
        for _ in range(round(10 * seconds)):
            self.now += 0.1
            found = self.stall_detector.stuck(list(range(SIZE)))
        return found


@pytest.fixture
def node(monkeypatch) -> Node:
    return Node(monkeypatch, stall_s=5.0)


def test_the_one_behind_is_stuck_and_those_who_wait_are_not(node):
    assert node.stall_detector.stuck([]) == []
    node.reach(7, COMMIT, 1)
    node.reach(8, READY, 0, 2)
    assert node.after(5.0) == []
    assert node.after(0.3) == [1]


def test_all_of_those_behind_are(node):
    node.reach(7, COMMIT, 0, 1)
    node.reach(8, READY, 2)
    assert node.after(5.3) == [0, 1]


def test_who_waited_is_not_accused_when_the_one_behind_arrives(node):
    """It may take a moment before the others run again, and the next look may come before that."""
    node.reach(7, COMMIT, 1)
    node.reach(8, READY, 0, 2)
    assert node.after(4.9) == []
    node.reach(8, READY, 1)
    assert node.after(4.9) == []
    assert node.after(0.4) == [0, 1, 2]


@pytest.mark.parametrize("arrives", [False, True])
def test_one_late_look_accuses_nobody_however_short_the_patience(monkeypatch, arrives):
    """The supervisor had no core for a second, and perhaps nobody else had one; or the one behind arrived meanwhile."""
    node = Node(monkeypatch, stall_s=0.8)
    node.reach(7, COMMIT, 1)
    node.reach(8, READY, 0, 2)
    assert node.after(0.2) == []
    if arrives:
        node.reach(8, READY, 1)
    node.now += 1.0
    assert node.stall_detector.stuck([0, 1, 2]) == []
    assert node.after(1.0) == ([0, 1, 2] if arrives else [1])


def test_a_sign_of_work_is_enough(node):
    node.reach(7, COMMIT, 0, 1, 2)
    for _ in range(5):
        assert node.after(4.0) == []
        node.words[protocol.line(1) + PULSE] += 1
        node.reach(8, READY, 0, 2)
    assert node.after(5.3) == [1]


def test_a_machine_that_was_suspended_accuses_nobody(node):
    node.reach(7, COMMIT, 0, 1, 2)
    assert node.after(1.0) == []
    node.now += 10_000.0
    assert node.after(3.0) == []
    assert node.after(1.5) == [0, 1, 2]


def test_a_new_membership_starts_anew(node):
    node.reach(7, COMMIT, 0, 1, 2)
    node.after(4.0)
    node.stall_detector.forget()
    assert node.after(4.0) == []


@pytest.mark.parametrize(
    ("pieces", "rounds", "round_s", "patience_s"),
    [
        (1.0, 29, 10.0, 200.0),
        (50.0, 5, 200.0, 80.0),  # an epoch without meetings is one round: 20 of them would be a day
    ],
)
def test_patience_follows_the_length_of_a_round_or_of_a_piece_of_it(monkeypatch, pieces, rounds, round_s, patience_s):
    node = Node(monkeypatch, stall_s=0.0)
    node.stall_detector = StallDetector(node.words, 0.0, pieces=pieces)
    assert node.stall_detector.patience_s() == FIRST_S
    for position in range(1, rounds + 1):
        node.reach(position, READY, 0, 1, 2)
        node.after(round_s)
    assert node.stall_detector.patience_s() == pytest.approx(patience_s, rel=0.05)


def test_ranks_that_are_ended_one_after_the_other_in_one_round_have_more_and_more_time(node):
    """What is slow there and not stuck would else be ended for ever."""
    node.reach(7, COMMIT, 0, 1, 2)
    for patience_s in (5.0, 10.0, 20.0):
        assert node.stall_detector.patience_s() == patience_s
        assert node.after(patience_s - 0.1) == []
        assert node.after(0.5) == [0, 1, 2]
        node.stall_detector.accuse()
        node.stall_detector.forget()
    node.stall_detector.forget()  # somebody joined
    assert node.stall_detector.patience_s() == 40.0
    node.reach(8, COMMIT, 0, 1, 2)
    node.after(0.1)
    assert node.stall_detector.patience_s() == 5.0


@pytest.mark.parametrize(("waited_s", "cause"), [(9.0, "was killed for memory"), (25.0, "was killed by SIGKILL")])
def test_memory_kills_of_long_ago_explain_nothing(monkeypatch, tmp_path, waited_s, cause):
    """That of another process within the same limit, while ours were well."""
    now, counter = [1000.0], tmp_path / "memory.events"
    (tmp_path / "own").write_text("0::/\n")
    counter.write_text("low 0\noom 0\noom_kill 7\n")
    monkeypatch.setattr(resources, "_OWN", tmp_path / "own")
    monkeypatch.setattr(resources, "_CGROUP", tmp_path)
    monkeypatch.setattr("unisono.supervise.stall_detector.time.monotonic", lambda: now[0])
    causes = EndCauses()
    counter.write_text("low 0\noom 1\noom_kill 8\n")
    for _ in range(round(waited_s / 0.1)):
        now[0] += 0.1
        causes.look()
    assert causes.of(ChildExit(1, signal.SIGKILL, False, None, None)).startswith(cause)
    assert causes.of(ChildExit(2, signal.SIGKILL, False, None, None)) == "was killed by SIGKILL", (
        "it has not moved since"
    )
