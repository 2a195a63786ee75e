"""A rank dies while replicas walk alone, or where they meet: the result is that of the quiet run."""

from itertools import product as products

import pytest

from support.faults.plans import BUFFERS_MARK, FROZEN, MARK, PULSED, UPDATE, Fault, kill_at
from support.faults.trials import SMALL, quiet, trial
from unisono.arena.membership.protocol import COMMIT, READY

LOCAL = SMALL.with_options(strategy="local", sync_every=3, batch_size=16)
"""Six steps an epoch, the last one ragged; replicas meet in rounds 3, 6, 10 and 13. Adam's sums, and buffers."""
RANKS = (0, 1, 3)
WHEN = ("before", "after")


@pytest.mark.parametrize(("phase", "rank", "when"), [*products((READY, COMMIT), RANKS, WHEN)])
def test_around_every_meeting(monkeypatch, phase, rank, when):
    found = trial(monkeypatch, LOCAL, kill_at(rank, 6, phase, when))
    found.check(quiet(LOCAL))
    assert found.deaths() == [rank]
    assert (found.outcome.takeovers, found.outcome.restarts) == (1, 1)


@pytest.mark.parametrize(("at", "rank", "when"), [*products((PULSED, UPDATE), RANKS, WHEN)])
def test_in_the_middle_of_a_journey(monkeypatch, at, rank, when):
    """Between two steps of a replica, and in a step that has spoilt half of its state."""
    trial(monkeypatch, LOCAL, Fault(rank, at, when, position=4)).check(quiet(LOCAL))


@pytest.mark.parametrize(("at", "when"), [*products((MARK, BUFFERS_MARK), WHEN)])
def test_while_replicas_are_averaged(monkeypatch, at, when):
    trial(monkeypatch, LOCAL, Fault(0, at, when, position=6)).check(quiet(LOCAL))


def test_two_in_their_local_steps_and_one_while_the_others_stand_still(monkeypatch):
    faults = Fault(1, UPDATE, "after", position=4), Fault(3, PULSED, "before", position=4), Fault(2, FROZEN, "after")
    trial(monkeypatch, LOCAL, *faults).check(quiet(LOCAL))


def test_in_every_stretch_of_a_run_without_replacements(monkeypatch):
    faults = (
        Fault(3, UPDATE, "before", position=4),
        Fault(0, UPDATE, "after", position=8),
        kill_at(1, 13, READY, "before"),
    )
    found = trial(monkeypatch, LOCAL.with_options(respawn=False), *faults)
    found.check(quiet(LOCAL))
    assert (found.outcome.takeovers, found.outcome.restarts) == (3, 0)
