"""Replacements: they die while they join, and whoever is the only rank left is not the last while one is coming."""

import pytest

from support.faults.plans import BIRTH, ENTRY, FLAG, FROZEN, PULSED, REPORT, UPDATE, Fault, kill_at
from support.faults.trials import FINAL, SMALL, quiet, trial
from unisono.arena.membership.protocol import COMMIT, READY, View, current_view, publish, words_needed

LONGER = SMALL.with_options(epochs=20)
FIRST = kill_at(2, 1, READY, "before")
JOINING = {
    "born": Fault(2, BIRTH, life=1),
    "before it says that it is ready": Fault(2, f"{REPORT} ReadyToJoin", life=1),
    "ready": Fault(2, f"{REPORT} ReadyToJoin", "after", life=1),
    "waiting to be let in": Fault(2, ENTRY, life=1),
    "its first shard": Fault(2, PULSED, life=1),
    "its first meeting": Fault(2, FLAG, life=1),
    "its first arrival": Fault(2, FLAG, "after", life=1),
    "its first update": Fault(2, UPDATE, life=1),
}


@pytest.mark.parametrize("fault", JOINING.values(), ids=JOINING)
def test_a_replacement_dies_while_it_joins(monkeypatch, fault):
    found = trial(monkeypatch, LONGER, FIRST, fault, whole=True)
    found.check(quiet(LONGER))
    assert found.deaths() == [2, 2]
    assert found.outcome.restarts == 2


def test_replacements_of_replacements(monkeypatch):
    faults = [FIRST, *(Fault(2, BIRTH, life=life) for life in (1, 2)), Fault(2, FLAG, life=3)]
    found = trial(monkeypatch, LONGER, *faults, whole=True)
    found.check(quiet(LONGER))
    assert found.outcome.restarts == 4


@pytest.mark.parametrize("when", ["before", "after"])
def test_somebody_dies_when_one_is_let_in(monkeypatch, when):
    """The second freeze is for a join; a member dies in it."""
    found = trial(monkeypatch, LONGER, FIRST, Fault(0, FROZEN, when, position=3), whole=True)
    found.check(quiet(LONGER))


def test_the_only_rank_left_dies_while_a_replacement_is_on_its_way(monkeypatch):
    """Both of two ranks, one after the other: the first one's replacement is there before the second one is missed."""
    two = LONGER.with_options(ranks=2)
    found = trial(monkeypatch, two, kill_at(0, 2, COMMIT, "before"), kill_at(1, 3, READY, "before"))
    found.check(quiet(LONGER))


def test_a_replacement_that_comes_too_late_is_not_waited_for(monkeypatch):
    found = trial(monkeypatch, SMALL, kill_at(3, FINAL, READY, "before"))
    found.check(quiet(SMALL))
    assert found.outcome.restarts == 1


def test_a_view_that_is_overwritten_while_it_is_read_is_read_again():
    """A replacement is not waited for before it is a member: two views may be published while it reads one."""

    class Slow(list):
        """Words that are read so slowly that `meanwhile` happens after the first look at the number of the view."""

        meanwhile = None

        def __getitem__(self, at):
            value = super().__getitem__(at)
            if at == 0 and self.meanwhile:
                happens, self.meanwhile = self.meanwhile, None
                happens()
            return value

    def others() -> None:
        publish(words, View(6, (0,), 60, COMMIT, ()), 3)
        publish(words, View(7, (0, 2), 70, READY, (0,)), 3)

    words = Slow([0] * words_needed(3))
    publish(words, View(5, (0, 1), 50, COMMIT, ()), 3)
    words.meanwhile = others
    assert current_view(words, 3) == View(7, (0, 2), 70, READY, (0,))
