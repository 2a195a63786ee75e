"""A rank dies at any point of a step, at any place: the result is that of the quiet run."""

from itertools import product as products

import pytest

from support.faults.plans import BUFFERS_MARK, FROZEN, MARK, PULSED, UPDATE, Fault, kill_at
from support.faults.trials import PLAIN, SMALL, STEPS, quiet, trial
from unisono.arena.membership.protocol import COMMIT, NORMS, READY

RANKS = (0, 1, 3)
WHEN = ("before", "after")


@pytest.mark.parametrize(("phase", "rank", "when"), [*products((READY, NORMS, COMMIT), RANKS, WHEN)])
def test_around_every_meeting(monkeypatch, phase, rank, when):
    found = trial(monkeypatch, SMALL, kill_at(rank, 2, phase, when))
    found.check(quiet(SMALL))
    assert found.deaths() == [rank]
    assert (found.outcome.takeovers, found.outcome.restarts) == (1, 1)


@pytest.mark.parametrize(("phase", "rank", "when"), [*products((READY, COMMIT), RANKS, WHEN)])
def test_around_every_meeting_of_a_plain_step(monkeypatch, phase, rank, when):
    trial(monkeypatch, PLAIN, kill_at(rank, STEPS, phase, when)).check(quiet(PLAIN))


@pytest.mark.parametrize(("at", "rank", "when"), [*products((MARK, UPDATE), RANKS, WHEN)])
@pytest.mark.parametrize("recipe", [SMALL, PLAIN], ids=lambda recipe: recipe.learning.optimizer)
def test_around_and_in_the_middle_of_an_update(monkeypatch, recipe, at, rank, when):
    trial(monkeypatch, recipe, Fault(rank, at, when, position=2)).check(quiet(recipe))


@pytest.mark.parametrize("when", WHEN)
def test_around_the_update_of_buffers(monkeypatch, when):
    trial(monkeypatch, SMALL, Fault(0, BUFFERS_MARK, when, position=2)).check(quiet(SMALL))


@pytest.mark.parametrize("rank", RANKS)
def test_between_shards(monkeypatch, rank):
    trial(monkeypatch, SMALL, Fault(rank, PULSED, "before", position=2)).check(quiet(SMALL))


@pytest.mark.parametrize(("phase", "when"), [*products((READY, NORMS, COMMIT), WHEN)])
def test_two_at_once(monkeypatch, phase, when):
    trial(monkeypatch, SMALL, kill_at(0, 2, phase, when), kill_at(2, 2, phase, when)).check(quiet(SMALL))


@pytest.mark.parametrize("at", [MARK, UPDATE])
def test_all_but_one_in_the_middle_of_an_update(monkeypatch, at):
    trial(monkeypatch, SMALL, *(Fault(rank, at, "after", position=2) for rank in (0, 1, 3))).check(quiet(SMALL))


@pytest.mark.parametrize(("phase", "when"), [*products((READY, COMMIT), WHEN)])
def test_while_the_others_stand_still_for_another_death(monkeypatch, phase, when):
    found = trial(monkeypatch, SMALL, kill_at(1, 2, phase, "before"), Fault(2, FROZEN, when))
    found.check(quiet(SMALL))
    assert sorted(found.deaths()) == [1, 2]


def test_a_redone_update_that_is_interrupted_again(monkeypatch):
    """The second attempt deals the vector to fewer owners: both undo the same round."""
    faults = Fault(1, UPDATE, "before", position=2), Fault(3, UPDATE, "after", position=2), Fault(0, FROZEN, "after")
    trial(monkeypatch, SMALL, *faults).check(quiet(SMALL))


def test_in_every_step_of_a_run(monkeypatch):
    faults = [kill_at(rank, position, NORMS, "after") for rank, position in ((0, 1), (1, 2), (2, 3), (3, 5))]
    trial(monkeypatch, SMALL, *faults).check(quiet(SMALL))


def test_without_replacements(monkeypatch):

    faults = kill_at(0, 2, READY, "before"), Fault(2, UPDATE, "before", position=5)
    found = trial(monkeypatch, SMALL.with_options(respawn=False), *faults)
    found.check(quiet(SMALL))
    assert (found.outcome.takeovers, found.outcome.restarts) == (2, 0)
