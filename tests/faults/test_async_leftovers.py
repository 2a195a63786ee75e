"""What asynchronous ranks that die leave to the others, and to who resumes the run: an order, batches, sums."""

import csv
import fcntl
import mmap
import os
import signal
import struct
import termios
from pathlib import Path

import numpy as np
import pytest

from support.faults.async_runs import PUSHES, RECIPE, Knife, deaths, lend, of_log, run
from unisono.arena.membership.protocol import freezing
from unisono.arena.sync.crash_safe_lock import CrashSafeLocks
from unisono.arena.sync.waiting import wait_until
from unisono.errors import UserError
from unisono.messages.rank_reports import EpochRecord
from unisono.runs.early_end import Halted
from unisono.runs.supervised_training import RunPlaces, SupervisedRun
from unisono.storage.rundir import RunDirectory
from unisono.storage.snapshots.snapshot import require_newest
from unisono.strategies.asynchronous.arena.arena_sequencer import ArenaSequencer
from unisono.strategies.asynchronous.arena.buffers import LEAVING, POSTED
from unisono.strategies.asynchronous.arena.parameter_part import ParameterShard
from unisono.strategies.asynchronous.arena.strategy import AsyncArena
from unisono.strategies.asynchronous.arena.worker import Worker
from unisono.strategies.asynchronous.recorded_order import OWN
from unisono.strategies.asynchronous.sequencer import DROP, HELLO, PUSH
from unisono.training.job import prepare

pytestmark = pytest.mark.usefixtures("no_price", "few_cores")


def write_order(path: Path, epochs: int = 1) -> str:
    """Ranks 4, 2, 3 in turn."""
    rows = [(epoch, (4, 2, 3)[batch % 3], batch) for epoch in range(1, epochs + 1) for batch in range(PUSHES)]
    path.write_text("\n".join(",".join(map(str, row)) for row in (OWN, *rows)) + "\n")
    return str(path)


@pytest.mark.parametrize("respawn", [True, False])
def test_a_recorded_order_that_lost_a_worker_is_given_up_for_the_epoch(monkeypatch, tmp_path, respawn):
    recipe = RECIPE.with_options(order=write_order(tmp_path / "pushes.csv"), respawn=respawn)
    knife = Knife(3, 2, "before").into(monkeypatch, Worker, "_compute")
    sha256, log, events = run(recipe)
    assert knife.struck
    assert deaths(events) == [3]
    assert sha256 == of_log(recipe, log)


def test_a_sequencer_dies_while_it_clears_the_sums_of_the_epoch_before(monkeypatch):
    """What is not cleared yet is not done."""
    mark, opened = mmap.mmap(-1, 4096), ArenaSequencer.open

    class Steps(np.ndarray):
        def __setitem__(self, at, value):
            if at is Ellipsis and not mark[0] and np.isfinite(np.asarray(self)).all() and np.asarray(self).any():
                mark[0] = 1
                np.asarray(self)[: PUSHES // 2] = value
                os.kill(os.getpid(), signal.SIGKILL)
            super().__setitem__(at, value)

    def open_with(arena_sequencer, *given):
        arena_sequencer._steps = arena_sequencer._steps.view(Steps)
        opened(arena_sequencer, *given)

    monkeypatch.setattr(ArenaSequencer, "open", open_with)
    _, _, events = run(RECIPE.with_options(epochs=2))  # which looks at the second one's batches
    assert mark[0]
    assert deaths(events) == [0]


def test_who_has_done_its_share_greets_before_it_takes_a_dead_ones(monkeypatch):
    """Its copy has aged while it had nothing to do, and nobody has waited for it."""
    compute, mine = Worker._compute, PUSHES // 3

    def dies_last(worker, *given):
        if worker._slot == 3:
            async_buffers = worker._async_buffers
            while async_buffers.ordered(1) < 3 + 2 * mine:  # the others have greeted, and are done
                os.sched_yield()
            os.kill(os.getpid(), signal.SIGKILL)
        compute(worker, *given)

    monkeypatch.setattr(Worker, "_compute", dies_last)
    recipe = RECIPE.with_options(order="free", max_staleness="none", respawn=False)
    sha256, log, events = run(recipe)
    assert deaths(events) == [3]
    for rank in (2, 4):
        kinds = [entry.kind for entry in log if entry.rank == rank]
        assert kinds[: mine + 3] == [HELLO, *[PUSH] * mine, HELLO, PUSH]
    assert max(entry.staleness for entry in log[3 + 2 * mine :]) <= 3, "what the other one can push meanwhile"
    assert sha256 == of_log(recipe, log)


def test_gradients_that_were_collected_and_not_applied_are_not_done(monkeypatch, tmp_path):
    """No rank is left in the middle of a group: the snapshot says of them that they are to be done again."""
    answer, supervisor = ParameterShard._answer, os.getpid()

    def dies(part, entry):
        answer(part, entry)
        if entry.ordinal == 4 and entry.kind == PUSH and os.getpid() != supervisor:  # two of the second group of three
            os.killpg(0, signal.SIGKILL)

    def live(supervised_run, slot, *rest):
        os.setpgid(0, group[0])
        return lived(supervised_run, slot, *rest)

    recipe = RECIPE.with_options(staleness_rule="softsync", respawn=False, masters=1, ranks=4)
    supervised_run = SupervisedRun(prepare(recipe), RunPlaces(snapshots=tmp_path))
    lived, group = SupervisedRun._live, [0]
    child = os.fork()  # whose group all ranks join, so that they die together
    if not child:
        os.setpgid(0, 0)
        signal.pause()
        os._exit(0)
    try:
        os.setpgid(child, child)
        group[0] = child
        monkeypatch.setattr(SupervisedRun, "_live", live)
        monkeypatch.setattr(ParameterShard, "_answer", dies)
        with pytest.raises(Halted, match="no rank is left"):
            supervised_run.train(lambda rank, value: None)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    async_buffers = supervised_run._hooks.setup.async_buffers
    log = [async_buffers.entry(number) for number in range(async_buffers.ordered(1))]
    last = max(number for number, entry in enumerate(log) if entry.updates)
    applied = {entry.batch for entry in log[: last + 1] if entry.kind in (PUSH, DROP)}
    assert len(applied) == 3
    assert any(entry.kind == PUSH for entry in log[last + 1 :])
    steps = require_newest(tmp_path).arrays("tables")["steps"]
    assert set(np.flatnonzero(np.isfinite(steps[:, 0])).tolist()) == applied


def test_who_waits_with_a_pen_in_hand_puts_it_down_before_it_stands_still(monkeypatch):
    """Rank 3 dies while it sends, and rank 4, which opens the log, waits for that with the pen. The supervisor puts all
    pens back: had rank 4 kept its own, there would be two, and two sequencers."""
    marks, lingered, released = mmap.mmap(-1, 4096), AsyncArena._linger, CrashSafeLocks.release
    opened, posted = Worker.open, Worker._post

    def leaving(worker):
        words, own = worker._async_buffers.words, worker._async_buffers.worker(3)
        return words[own + LEAVING] > words[own + POSTED]

    def open_late(worker, *given):
        opened(worker, *given)
        if worker._slot == 4 and not marks[0]:
            assert wait_until(lambda: leaving(worker), 20)

    def die_half_way(worker, greets, *found):
        if worker._slot == 3 and not greets and not marks[0]:
            assert wait_until(lambda: marks[1], 20)
            marks[0] = 1
            os.kill(os.getpid(), signal.SIGKILL)
        posted(worker, greets, *found)

    def linger(rank):
        marks[1] = 1
        lingered(rank)

    def release(crash_safe_locks, number):
        released(crash_safe_locks, number)
        (there,) = struct.unpack("i", fcntl.ioctl(crash_safe_locks._pipes[number][0], termios.FIONREAD, b"\0" * 4))
        marks[2] |= there > 1

    lend(monkeypatch)
    monkeypatch.setattr(Worker, "open", open_late)
    monkeypatch.setattr(Worker, "_post", die_half_way)
    monkeypatch.setattr(AsyncArena, "_linger", linger)
    monkeypatch.setattr(CrashSafeLocks, "release", release)
    recipe = RECIPE.with_options(order="free")
    sha256, log, events = run(recipe)
    assert marks[0], "rank 3 died while rank 4 waited for it"
    assert not marks[2], "a pen was there twice"
    assert deaths(events) == [3]
    assert sha256 == of_log(recipe, log)


def test_who_is_dead_and_not_replaced_counts_nothing_in_later_epochs(monkeypatch):
    """Its row of the boxes holds what it counted in the last epoch that it lived through."""
    compute = Worker._compute

    def dies(worker, *given):
        if worker._slot == 3 and worker._epoch == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        compute(worker, *given)

    monkeypatch.setattr(Worker, "_compute", dies)
    records = []
    recipe = RECIPE.with_options(respawn=False, epochs=3, clip=1e-6)
    SupervisedRun(prepare(recipe), RunPlaces()).train(
        lambda rank, value: records.append(value) if isinstance(value, EpochRecord) else None
    )
    names = ("pushes", "clips", "wait_master_0_s", "wait_master_1_s")
    found = [[record.ranks[3][name] > 0 for name in names] for record in records]
    assert found == [[True] * 4, [False] * 4, [False] * 4]
    assert all(record.ranks[4]["clips"] > 0 for record in records)


@pytest.mark.parametrize("respawn", [True, False])
def test_a_record_that_cannot_be_repeated_is_refused(monkeypatch, tmp_path, respawn):
    """A worker dies in the second epoch: after its replacement's greeting the pushes are others than in a repeat."""
    compute, exchange, mark = Worker._compute, AsyncArena._exchange, mmap.mmap(-1, 4096)
    members = []  # this rank's

    def exchanged(rank, *given):
        members[:] = [rank._member]
        exchange(rank, *given)

    def came() -> bool:
        """Its replacement; or who computes is to stand still, so that it can come."""
        return mark[1] > 0 or freezing(members[0].words, members[0].view.number)

    def dies(worker, *given):
        if (worker._slot, worker._epoch) == (3, 2):
            if not mark[0]:
                mark[0] = 1
                os.kill(os.getpid(), signal.SIGKILL)
            mark[1] = 1
        elif mark[0] and respawn:
            wait_until(came, 20.0)  # so that something is left for it
        compute(worker, *given)

    recipe = RECIPE.with_options(order="free", epochs=2, respawn=respawn)
    job = prepare(recipe)
    with RunDirectory.make(str(tmp_path / "run"), job.recipe) as directory, monkeypatch.context() as patch:
        patch.setattr(Worker, "_compute", dies)
        patch.setattr(AsyncArena, "_exchange", exchanged)
        names = list(job.model().layout.names)
        outcome = SupervisedRun(job, RunPlaces()).train(
            lambda rank, value: isinstance(value, EpochRecord) and directory.add(value, names)
        )
    assert mark[0]
    order = str(tmp_path / "run" / "pushes.csv")
    again = recipe.with_options(order=order)
    with open(order, newline="") as file:
        disturbed = any(int(row["greeted"]) for row in csv.DictReader(file))
    if respawn:
        assert disturbed
    if disturbed:
        with pytest.raises(UserError, match=r"in the middle of epoch 2(.|\n)*give --epochs 1"):
            prepare(again)
        run(again.with_options(epochs=1))
    else:
        assert run(again)[0] == next(found for found in outcome.results.values() if found)["weights_sha256"]
