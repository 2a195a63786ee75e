"""What asynchronous ranks that die leave to the others, and to who resumes the run: an order, batches, sums."""

import mmap
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_async import PUSHES, RECIPE, Knife, deaths, few_cores, no_price, reference, run  # noqa: F401

from unisono.strategies.asynchronous.clerk import DROP, HELLO, PUSH
from unisono.strategies.asynchronous.desk import Desk
from unisono.strategies.asynchronous.orders import FIELDS
from unisono.strategies.asynchronous.part import Part
from unisono.strategies.asynchronous.worker import Worker
from unisono.train.job import prepare
from unisono.train.snapshots.finding import require_newest
from unisono.train.team import Halted, Places, Team


def write_order(path: Path, epochs: int = 1) -> str:
    """Ranks 4, 2, 3 in turn."""
    rows = [(epoch, (4, 2, 3)[batch % 3], batch, 0, 1) for epoch in range(1, epochs + 1) for batch in range(PUSHES)]
    path.write_text("\n".join(",".join(map(str, row)) for row in (FIELDS, *rows)) + "\n")
    return str(path)


@pytest.mark.parametrize("respawn", [True, False])
def test_a_recorded_order_that_lost_a_worker_is_given_up_for_the_epoch(monkeypatch, tmp_path, respawn):
    recipe = replace(RECIPE, order=write_order(tmp_path / "pushes.csv"), respawn=respawn)
    knife = Knife(3, 2, "before").into(monkeypatch, Worker, "_compute")
    sha256, log, events = run(recipe)
    assert knife.struck
    assert deaths(events) == [3]
    order = [(entry.rank, entry.batch) for entry in log if entry.kind in (HELLO, PUSH)]
    assert sha256 == reference(prepare(recipe), [order])


def test_a_clerk_dies_while_it_clears_the_sums_of_the_epoch_before(monkeypatch):
    """What is not cleared yet is not done."""
    mark, opened = mmap.mmap(-1, 4096), Desk.open

    class Steps(np.ndarray):
        def __setitem__(self, at, value):
            if at is Ellipsis and not mark[0] and np.isfinite(np.asarray(self)).all() and np.asarray(self).any():
                mark[0] = 1
                np.asarray(self)[: PUSHES // 2] = value
                os.kill(os.getpid(), signal.SIGKILL)
            super().__setitem__(at, value)

    def open_with(desk, *given):
        desk._steps = desk._steps.view(Steps)
        opened(desk, *given)

    monkeypatch.setattr(Desk, "open", open_with)
    _, _, events = run(replace(RECIPE, epochs=2))  # which looks at the second one's batches
    assert mark[0]
    assert deaths(events) == [0]


def test_who_has_done_its_share_greets_before_it_takes_a_dead_ones(monkeypatch):
    """Its copy has aged while it had nothing to do, and nobody has waited for it."""
    compute, mine = Worker._compute, PUSHES // 3

    def dies_last(worker, *given):
        if worker._slot == 3:
            boxes = worker._boxes
            while boxes.ordered(1) < 3 + 2 * mine:  # the others have greeted, and are done
                os.sched_yield()
            os.kill(os.getpid(), signal.SIGKILL)
        compute(worker, *given)

    monkeypatch.setattr(Worker, "_compute", dies_last)
    recipe = replace(RECIPE, order="free", max_staleness="none", respawn=False)
    sha256, log, events = run(recipe)
    assert deaths(events) == [3]
    for rank in (2, 4):
        kinds = [entry.kind for entry in log if entry.rank == rank]
        assert kinds[: mine + 3] == [HELLO, *[PUSH] * mine, HELLO, PUSH]
    assert max(entry.staleness for entry in log[3 + 2 * mine :]) <= 2
    order = [(entry.rank, entry.batch) for entry in log if entry.kind in (HELLO, PUSH)]
    assert sha256 == reference(prepare(recipe), [order])


def test_gradients_that_were_collected_and_not_applied_are_not_done(monkeypatch, tmp_path):
    """No rank is left in the middle of a group: the snapshot says of them that they are to be done again."""
    answer, supervisor = Part._answer, os.getpid()

    def dies(part, entry):
        answer(part, entry)
        if entry.ordinal == 4 and entry.kind == PUSH and os.getpid() != supervisor:  # two of the second group of three
            os.killpg(0, signal.SIGKILL)

    def live(team, slot, *rest):
        os.setpgid(0, group[0])
        return lived(team, slot, *rest)

    recipe = replace(RECIPE, staleness_rule="softsync", respawn=False, masters=1, ranks=4)
    team = Team(prepare(recipe), Places(snapshots=tmp_path))
    lived, group = Team._live, [0]
    child = os.fork()  # whose group all ranks join, so that they die together
    if not child:
        os.setpgid(0, 0)
        signal.pause()
        os._exit(0)
    try:
        os.setpgid(child, child)
        group[0] = child
        monkeypatch.setattr(Team, "_live", live)
        monkeypatch.setattr(Part, "_answer", dies)
        with pytest.raises(Halted, match="no rank is left"):
            team.train(lambda rank, value: None)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    boxes = team._setup.boxes
    log = [boxes.entry(number) for number in range(boxes.ordered(1))]
    last = max(number for number, entry in enumerate(log) if entry.updates)
    applied = {entry.batch for entry in log[: last + 1] if entry.kind in (PUSH, DROP)}
    assert len(applied) == 3
    assert any(entry.kind == PUSH for entry in log[last + 1 :])
    steps = require_newest(tmp_path).arrays("tables")["steps"]
    assert set(np.flatnonzero(np.isfinite(steps[:, 0])).tolist()) == applied
