"""Asynchronous runs that end in the middle of an epoch: what is done counts, and the rest is done when they go on."""

import os
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unisono.arena.sync.waiting import wait_until
from unisono.messages.rank_reports import EpochRecord
from unisono.recipe import Recipe
from unisono.runs.early_end import Halted
from unisono.runs.supervised_training import RunPlaces, SupervisedRun
from unisono.storage.snapshots.snapshot import Snapshot, require_newest
from unisono.strategies.asynchronous.arena.buffers import DONE, HALTED, count_of
from unisono.strategies.asynchronous.arena.parameter_part import ParameterShard
from unisono.strategies.asynchronous.arena.worker import Worker
from unisono.strategies.asynchronous.sequencer import PUSH
from unisono.training.job import prepare

pytestmark = pytest.mark.usefixtures("no_price")

RECIPE = Recipe.from_options(
    strategy="async", ranks=4, masters=2, model="mlp:300", batch_size=3, epochs=2, staleness_rule="softsync",
    data="synthetic:classes=4,rows=90,features=8,test_rows=60", optimizer="momentum", lr=0.1,
)  # fmt: skip
PUSHES = 30


def run(recipe: Recipe, folder: Path, snapshot: Snapshot | None = None) -> tuple[SupervisedRun, list[dict[str, Any]]]:
    records: list[dict[str, Any]] = []
    supervised_run = SupervisedRun(prepare(recipe), RunPlaces(snapshots=folder))
    if snapshot is not None:
        supervised_run.resume(snapshot)
    with suppress(Halted):
        supervised_run.train(lambda rank, value: records.append(value) if isinstance(value, EpochRecord) else None)
    return supervised_run, records


def batches(supervised_run: SupervisedRun, epoch: int) -> list[int]:
    async_buffers = supervised_run._hooks.setup.async_buffers
    return [
        entry.batch for entry in map(async_buffers.entry, range(async_buffers.ordered(epoch))) if entry.kind == PUSH
    ]


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_halt_is_obeyed_at_once_and_every_batch_is_used_once(monkeypatch, tmp_path, epoch):
    compute = Worker._compute

    def asked(worker: Worker, number: int, group: Any) -> None:
        if (worker._epoch, number) == (epoch, 4):
            os.kill(os.getppid(), signal.SIGTERM)
        if (worker._epoch, number) == (epoch, PUSHES - 1):  # the parent may hear of it when all other pushes are done
            assert wait_until(lambda: count_of(worker._async_buffers.words[DONE], epoch) == HALTED, 20)
        compute(worker, number, group)

    with monkeypatch.context() as patch:
        patch.setattr(Worker, "_compute", asked)
        supervised_run, records = run(RECIPE, tmp_path)
    first = batches(supervised_run, epoch)
    assert 0 < len(first) < PUSHES
    assert len(records) == epoch - 1
    snapshot = require_newest(tmp_path)
    np.testing.assert_array_equal(snapshot.arrays("params")["0.W"].ravel(), supervised_run._shared.params[: 8 * 300])
    supervised_run, records = run(RECIPE, tmp_path, snapshot)
    rest = [batch for _, batch, *_ in records[0].pushes]
    assert Counter(first + rest) == Counter(range(PUSHES))
    assert [record.metrics["epoch"] for record in records] == list(range(epoch, 3))
    metrics = records[0].metrics
    assert np.isfinite(metrics["train_loss"])
    assert metrics["samples_per_s"] * metrics["epoch_s"] == pytest.approx(3 * len(rest)), "others took no time now"


def test_when_no_rank_is_left_what_is_in_the_log_is_applied(monkeypatch, tmp_path):
    answer, supervisor = ParameterShard._answer, os.getpid()

    def dies(part: ParameterShard, entry: Any) -> None:
        answer(part, entry)
        if part._applied > 12 and os.getpid() != supervisor:
            os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(ParameterShard, "_answer", dies)
        supervised_run, _ = run(RECIPE.with_options(respawn=False), tmp_path)
    async_buffers = supervised_run._hooks.setup.async_buffers
    applied = [async_buffers.words[async_buffers.part(number)] for number in range(2)]
    assert applied == [async_buffers.words[0]] * 2  # both parts are where the log is
    log = [async_buffers.entry(number) for number in range(async_buffers.ordered(1))]
    updates = [number for number, entry in enumerate(log) if entry.updates]
    first = [entry.batch for entry in log[: updates[-1] + 1] if entry.kind == PUSH]  # others were collected only
    _, records = run(RECIPE, tmp_path, require_newest(tmp_path))
    rest = [batch for _, batch, *_ in records[0].pushes]
    assert Counter(first + rest) == Counter(range(PUSHES))
