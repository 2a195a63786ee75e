"""Coming to rest: who is waited for, who is heard meanwhile, and what becomes of the late. The clock is made up."""

from collections.abc import Callable
from typing import Any

import pytest

from unisono.arena.membership import protocol
from unisono.supervise.wait_until_frozen import FreezeRequest, wait_until_frozen

SIZE, PATIENCE_S = 3, 10.0


class Node:
    """Words, those who live, and a clock that moves only while somebody naps; then `then` happens, one thing a nap."""

    def __init__(self, monkeypatch: Any) -> None:
        self.now, self.naps = 1000.0, 0
        self.words = [0] * protocol.words_needed(SIZE)
        self.view = protocol.first_view(self.words, range(SIZE), SIZE)
        self.living: list[int] | None = list(range(SIZE))
        self.unheard: list[int] = []
        self.then: list[Callable[[], None]] = []
        self.late: list[list[int] | None] = []
        monkeypatch.setattr("unisono.arena.sync.waiting.time.monotonic", lambda: self.now)
        monkeypatch.setattr("unisono.arena.sync.waiting.time.sleep", self._nap)
        monkeypatch.setattr("unisono.arena.sync.waiting.os.sched_yield", lambda: self._nap(0.001))

    def _nap(self, seconds: float) -> None:
        self.now, self.naps = self.now + max(seconds, 1.0), self.naps + 1
        assert self.naps < 1000, "waits for ever"
        if self.then:
            self.then.pop(0)()

    def freeze(self, *slots: int) -> None:
        assert protocol.freezing(self.words, self.view.number), "nobody was asked to"
        for slot in slots:
            protocol.stand_still(self.words, slot)

    def die(self, slot: int) -> None:
        self.unheard.append(slot)

    def listen(self) -> bool:
        heard, self.unheard = self.unheard, []
        self.living = [slot for slot in self.living or [] if slot not in heard] if heard else self.living
        return bool(heard)

    def rest(self, on_late: Callable[[], None] = lambda: None) -> list[int]:
        def late(slots: list[int] | None) -> None:
            self.late.append(slots)
            on_late()

        return wait_until_frozen(self.words, FreezeRequest(lambda: self.living, self.listen, lambda: PATIENCE_S, late))


@pytest.fixture
def node(monkeypatch) -> Node:
    return Node(monkeypatch)


def test_all_must_stand_still(node):
    node.then = [lambda: node.freeze(1), lambda: node.freeze(0), lambda: node.freeze(2)]
    assert node.rest() == [0, 1, 2]
    assert (node.then, node.naps, node.late) == ([], 3, [])


def test_the_dead_are_not_waited_for(node):
    node.then = [lambda: node.freeze(0, 2), lambda: node.die(1)]
    assert node.rest() == [0, 2]
    assert node.naps == 2
    node.then = [lambda: [node.die(slot) for slot in (0, 2)]]  # nobody left is an end too
    node.words = [0] * protocol.words_needed(SIZE)
    node.view = protocol.first_view(node.words, range(SIZE), SIZE)
    assert node.rest() == []


def test_who_dies_while_standing_still_is_no_member_either(node):
    """It is looked at once more after somebody was heard of, without a nap."""
    node.then = [lambda: node.freeze(0, 1), lambda: node.die(0), lambda: node.freeze(2)]
    assert node.rest() == [1, 2]


def test_an_old_freeze_does_not_count(node):
    """Whoever stood still for the view before has moved since."""
    node.then = [lambda: node.freeze(0, 1, 2)]
    node.rest()
    protocol.publish(node.words, protocol.outcome(node.words, node.view, range(SIZE)), SIZE)
    node.view = protocol.current_view(node.words, SIZE)
    node.then = [lambda: node.freeze(0, 1), lambda: node.freeze(2)]
    assert node.rest() == [0, 1, 2]
    assert node.then == []


def test_the_late_are_told_each_time_that_patience_ends(node):
    node.then = [lambda: node.freeze(0, 2)]

    def end_it() -> None:
        if len(node.late) == 2:
            node.die(1)

    assert node.rest(end_it) == [0, 2]
    assert node.late == [[1], [1]]
    assert node.now == pytest.approx(1000.0 + 2 * PATIENCE_S, abs=2.0)


def test_time_in_which_this_process_did_not_run_is_no_patience(node):
    """The machine was suspended, or all of the group was stopped: nobody could stand still meanwhile."""

    def suspend() -> None:
        node.now += 3 * PATIENCE_S

    node.then = [lambda: node.freeze(0, 2), suspend, lambda: node.freeze(1)]
    assert node.rest() == [0, 1, 2]
    assert node.late == []


def test_who_is_on_his_way_is_waited_for(node):
    """A node without a living member is not at rest, until there is one again or nobody comes any more."""
    node.living = None

    def come() -> None:
        node.living = []

    assert node.rest(come) == []
    assert node.late == [None]


def test_giving_up_is_an_exception(node):
    def give_up() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        node.rest(give_up)
    assert node.late == [[0, 1, 2]]
