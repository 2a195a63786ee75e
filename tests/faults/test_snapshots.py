"""Deaths while a snapshot is decided, copied and told: whatever is on the disk is whole, and leads to the same end."""

from dataclasses import replace

import pytest

from support.faults.plans import FLAG, REPORT, SPARE, UPDATE, Fault, Plan, kill_at, wait_until_still
from support.faults.trials import SMALL, quiet, run, trial
from unisono.arena.membership.protocol import COMMIT, READY
from unisono.runs.early_end import Halted
from unisono.runs.supervised_training import RunPlaces
from unisono.storage.snapshots.snapshot import listed, require_newest, verified

OFTEN = SMALL.with_options(snapshot_every="2steps", keep=99)
# The first one is decided in round 2, copied in round 3 before READY, and told after that meeting.
FAULTS = {
    "before it is decided": [Fault(0, SPARE, "before", position=2)],
    "decided": [Fault(0, SPARE, "after", position=2)],
    "before it is copied": [kill_at(1, 2, COMMIT, "after")],
    "copied": [kill_at(2, 3, READY, "before")],
    "copied by the first": [kill_at(0, 3, READY, "before")],
    "copied by all": [kill_at(0, 3, READY, "after")],
    "before it is told": [Fault(0, f"{REPORT} SnapshotReady", "before")],
    "told": [Fault(0, f"{REPORT} SnapshotReady", "after")],
    "one joins before anybody copied its part": [
        kill_at(3, 1, READY, "before"),
        replace(kill_at(0, 2, COMMIT, "before"), act=wait_until_still(2, 3)),
    ],
    "its copy interrupted again": [kill_at(0, 3, READY, "before"), Fault(3, "frozen", "after"), Fault(0, FLAG, life=1)],
}


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_a_snapshot_is_of_one_moment(monkeypatch, tmp_path, faults):
    joins = any(fault.life for fault in faults)
    recipe = OFTEN.with_options(epochs=6) if joins else OFTEN
    found = trial(monkeypatch, recipe, *faults, places=RunPlaces(snapshots=tmp_path), whole=joins)
    found.check(quiet(recipe))
    assert listed(tmp_path)
    monkeypatch.undo()
    for path in listed(tmp_path)[-2:]:
        resumed = run(recipe.with_options(ranks=2), snapshot=verified(path))
        assert resumed.sha256 == quiet(recipe).sha256
        assert resumed.epochs[0] == quiet(recipe).epochs[0]


ENDS = {
    "before a meeting": ([kill_at(rank, 2, READY, "before") for rank in range(4)], 1),
    "in the middle of an update": ([Fault(rank, UPDATE, "before", position=2) for rank in range(4)], 1),
    "updated, buffers too": ([kill_at(rank, 2, COMMIT, "before") for rank in range(4)], 1),
    "one of them committed": ([kill_at(rank, 2, COMMIT, "after" if rank == 0 else "before") for rank in range(4)], 1),
    "all of them committed": ([kill_at(rank, 2, COMMIT, "after") for rank in range(4)], 2),
    "in the first round": ([Fault(rank, UPDATE, "after", position=1) for rank in range(4)], 0),
}


@pytest.mark.parametrize(("faults", "reached"), ENDS.values(), ids=ENDS)
def test_when_nobody_is_left_the_last_whole_round_is_saved(monkeypatch, tmp_path, faults, reached):
    """With what was begun of the next one taken back: parameters, state and buffers."""
    plan = Plan(*faults).install(monkeypatch)
    with pytest.raises(Halted, match="no rank is left"):
        run(SMALL.with_options(respawn=False), RunPlaces(snapshots=tmp_path))
    assert plan.fired() == [True] * 4
    monkeypatch.undo()
    snapshot = require_newest(tmp_path)
    assert snapshot.position == reached
    resumed = run(SMALL.with_options(ranks=3), snapshot=snapshot)
    resumed.check(quiet(SMALL))
