"""Who is stuck: the one that everybody waits for. The clock is made up."""

import signal
from contextlib import closing
from typing import Any

import pytest

from unisono.arena import protocol
from unisono.arena.protocol import COMMIT, PULSE, READY, pack
from unisono.launch.crew import Crew, answer
from unisono.launch.lookout import FIRST_S, Lookout, Stacks

SIZE = 3


class Node:
    """Words and a clock."""

    def __init__(self, monkeypatch: Any, stall_s: float) -> None:
        self.now = 1000.0
        monkeypatch.setattr("unisono.launch.lookout.time.monotonic", lambda: self.now)
        self.words = [0] * protocol.words_needed(SIZE)
        self.lookout = Lookout(self.words, stall_s)

    def reach(self, position: int, phase: int, *slots: int) -> None:
        for slot in slots:
            protocol.arrive(self.words, slot, pack(1, position, phase))

    def after(self, seconds: float) -> list[int]:
        """Who is stuck after so long, looked at ten times a second."""
        found: list[int] = []
        for _ in range(round(10 * seconds)):
            self.now += 0.1
            found = self.lookout.stuck(list(range(SIZE)))
        return found


@pytest.fixture
def node(monkeypatch) -> Node:
    return Node(monkeypatch, stall_s=5.0)


def test_the_one_behind_is_stuck_and_those_who_wait_are_not(node):
    node.reach(7, COMMIT, 1)
    node.reach(8, READY, 0, 2)
    assert node.after(5.0) == []
    assert node.after(0.3) == [1]


def test_all_of_those_behind_are(node):
    node.reach(7, COMMIT, 0, 1)
    node.reach(8, READY, 2)
    assert node.after(5.3) == [0, 1]


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
    node.lookout.forget()
    assert node.after(4.0) == []


def test_patience_follows_the_length_of_a_round(monkeypatch):
    node = Node(monkeypatch, stall_s=0.0)
    assert node.lookout.patience_s() == FIRST_S
    for position in range(1, 30):
        node.reach(position, READY, 0, 1, 2)
        node.after(10.0)
    assert node.lookout.patience_s() == pytest.approx(200.0, rel=0.05)


def test_nobody_there_nobody_stuck(node):
    assert node.lookout.stuck([]) == []


def test_the_stack_of_one_that_runs_and_of_one_that_is_stopped(tmp_path):
    def spinning(report: Any) -> None:
        stacks.listen(0)
        report("up")
        while True:
            pass

    def stopped(report: Any) -> None:
        stacks.listen(1)
        report("up")
        signal.raise_signal(signal.SIGSTOP)
        while True:
            signal.pause()

    told: list[int] = []
    with closing(Stacks(2, tmp_path / "log")) as stacks, closing(Crew(lambda rank, _: told.append(rank), 0.0)) as crew:
        for slot, work in enumerate((spinning, stopped)):
            crew.start(slot, lambda sink, work=work: answer(work, sink))
        while len(told) < 2:
            crew.poll(1.0)
        paths = [stacks.save(crew, slot) for slot in (0, 1)]
    assert paths == [tmp_path / "log" / "rank-0.stack", tmp_path / "log" / "rank-1.stack"]
    assert "in spinning" in paths[0].read_text()
    assert "in stopped" in paths[1].read_text()


def test_no_folder_no_stack(tmp_path):
    with closing(Stacks(1, None)) as stacks, closing(Crew(lambda rank, value: None, 0.0)) as crew:
        crew.start(0, lambda sink: signal.pause())
        assert stacks.save(crew, 0) is None
