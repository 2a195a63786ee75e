"""A rank dies at any point of a step, at any place; a replica while it walks alone, or where replicas meet: the result
is that of the quiet run."""

from itertools import product as products

import pytest

from support.faults.plans import BUFFERS_MARK, FROZEN, MARK, PULSED, UPDATE, Fault, kill_at
from support.faults.trials import PLAIN, SMALL, STEPS, quiet, trial
from unisono.arena.membership.protocol import COMMIT, NORMS, READY

LOCAL = SMALL.with_options(strategy="local", sync_every=3, batch_size=16)
"""Six steps an epoch, the last one ragged; replicas meet in rounds 3, 6, 10 and 13. Adam's sums, and buffers."""
RANKS = (0, 1, 3)
WHEN = ("before", "after")
KINDS = {"small": SMALL, "plain": PLAIN, "local": LOCAL}

MEETINGS = [("small", 2, READY), ("small", 2, NORMS), ("small", 2, COMMIT), ("plain", STEPS, READY)]
MEETINGS += [("plain", STEPS, COMMIT), ("local", 6, READY), ("local", 6, COMMIT)]
"""Of a step with norms, of the last one of an epoch, of replicas."""
WITHIN = [(kind, at, 2) for kind, at in products(("small", "plain"), (MARK, UPDATE))]
WITHIN += [("local", PULSED, 4), ("local", UPDATE, 4)]
"""Around and in the middle of an update; between two steps of a replica, and in a step that spoilt half its state."""
FIRST = [("small", BUFFERS_MARK, 2), ("local", MARK, 6), ("local", BUFFERS_MARK, 6)]
"""What the first rank does: the update of buffers, and while replicas are averaged."""

ONE = [(kind, kill_at(rank, at, phase, when)) for (kind, at, phase), rank, when in products(MEETINGS, RANKS, WHEN)]
ONE += [
    (kind, Fault(rank, at, when, position=number)) for (kind, at, number), rank, when in products(WITHIN, RANKS, WHEN)
]
ONE += [(kind, Fault(0, at, when, position=number)) for (kind, at, number), when in products(FIRST, WHEN)]
ONE += [("small", Fault(rank, PULSED, position=2)) for rank in RANKS]  # between shards


@pytest.mark.parametrize(("kind", "fault"), ONE, ids=str)
def test_one_dies(monkeypatch, kind, fault):
    found = trial(monkeypatch, KINDS[kind], fault)
    found.check(quiet(KINDS[kind]))
    assert found.deaths() == [fault.rank]
    assert (found.outcome.takeovers, found.outcome.restarts) == (1, 1)


SEVERAL = [
    # At once.
    *(
        ("small", [kill_at(rank, 2, phase, when) for rank in (0, 2)])
        for phase, when in products((READY, NORMS, COMMIT), WHEN)
    ),
    # All but one, in the middle of an update.
    *(("small", [Fault(rank, at, "after", position=2) for rank in RANKS]) for at in (MARK, UPDATE)),
    # While the others stand still for another death.
    *(
        ("small", [kill_at(1, 2, phase, "before"), Fault(2, FROZEN, when)])
        for phase, when in products((READY, COMMIT), WHEN)
    ),
    # A redone update is interrupted again. It deals the vector to fewer owners: both undo the same round.
    ("small", [Fault(1, UPDATE, position=2), Fault(3, UPDATE, "after", position=2), Fault(0, FROZEN, "after")]),
    # In every step of a run.
    ("small", [kill_at(rank, position, NORMS, "after") for rank, position in ((0, 1), (1, 2), (2, 3), (3, 5))]),
    # Two in their local steps, and one while the others stand still.
    ("local", [Fault(1, UPDATE, "after", position=4), Fault(3, PULSED, position=4), Fault(2, FROZEN, "after")]),
]


@pytest.mark.parametrize(
    ("kind", "faults"), SEVERAL, ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value))
)
def test_several_die(monkeypatch, kind, faults):
    found = trial(monkeypatch, KINDS[kind], *faults)
    found.check(quiet(KINDS[kind]))
    assert sorted(found.deaths()) == sorted(fault.rank for fault in faults)


WITHOUT = {
    "small": [kill_at(0, 2, READY, "before"), Fault(2, UPDATE, position=5)],
    # In every stretch of a run.
    "local": [Fault(3, UPDATE, position=4), Fault(0, UPDATE, "after", position=8), kill_at(1, 13, READY, "before")],
}


@pytest.mark.parametrize("kind", WITHOUT)
def test_without_replacements(monkeypatch, kind):
    found = trial(monkeypatch, KINDS[kind].with_options(respawn=False), *WITHOUT[kind])
    found.check(quiet(KINDS[kind]))
    assert (found.outcome.takeovers, found.outcome.restarts) == (len(WITHOUT[kind]), 0)
