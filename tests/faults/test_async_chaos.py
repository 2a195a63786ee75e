"""Asynchronous ranks that die or stand still at random times: every batch once in every epoch, and nothing hangs."""

import mmap
import random
from functools import partial
from typing import Any

import pytest
import torment as tormentor
from torment import KILL, STOP, TWICE, WHILE_STOPPED, Habits, Run, torment

from unisono.arena.sync.waiting import wait_until
from unisono.messages.rank_reports import EpochRecord
from unisono.recipe import Recipe
from unisono.runs.supervised_training import RunPlaces, SupervisedRun
from unisono.strategies.asynchronous.arena.worker import Worker
from unisono.training.job import prepare

PUSHES, EPOCHS, FAULTS = 400, 2, 6
RECIPE = Recipe.from_options(
    strategy="async", model="mlp:32,16", batch_size=5, epochs=EPOCHS, lr=0.1, optimizer="sgd", max_restarts=1000,
    data=f"synthetic:classes=5,rows={5 * PUSHES},features=20,test_rows=0",
)  # fmt: skip
RUNS = [
    dict(ranks=4, masters=1),
    dict(ranks=5, masters=2, deal="dynamic", staleness_rule="softsync"),
    dict(ranks=5, masters=2, order="round-robin", optimizer="adam", lr=0.01),
    dict(ranks=3, masters=2, deal="dynamic", staleness_rule="delay-compensated", order="round-robin"),
    dict(ranks=4, masters=1, deal="dynamic", staleness_rule="plain", max_staleness="6:drop", respawn=False),
    dict(ranks=5, masters=1, staleness_rule="scaled", optimizer="momentum", max_staleness="5:wait"),
]


def work(recipe: Recipe) -> None:
    """A run, in a process that can be ended as a whole; raises if a batch was not used once."""
    found: dict[int, list[int]] = {}

    def hear(rank: int, value: Any) -> None:
        if isinstance(value, EpochRecord):
            found[value.metrics["epoch"]] = sorted(batch for _, batch, *_ in value.pushes)

    SupervisedRun(prepare(recipe), RunPlaces()).train(hear)
    assert found == {epoch: list(range(PUSHES)) for epoch in range(1, EPOCHS + 1)}


def wait_for_a_fault(monkeypatch: Any) -> mmap.mmap:
    """No run comes to its end before one was struck; its first byte says that one was."""
    mark, strike, compute = mmap.mmap(-1, 4096), tormentor._strike, Worker._compute

    def struck(*given: Any) -> bool:
        hit = strike(*given)
        mark[0] |= hit
        return hit

    def computed(worker: Worker, *given: Any) -> None:
        if worker._epoch == EPOCHS:
            wait_until(lambda: mark[0] > 0, 60.0)
        compute(worker, *given)

    monkeypatch.setattr(tormentor, "_strike", struck)
    monkeypatch.setattr(Worker, "_compute", computed)
    return mark


@pytest.mark.parametrize("options", RUNS, ids=lambda options: "-".join(map(str, options.values())))
@pytest.mark.parametrize("cores", [0, 64], ids=["masters do it", "workers lend a hand"])
def test_every_batch_once_whoever_dies_when(monkeypatch, tmp_path, options, cores):
    monkeypatch.setattr("unisono.strategies.asynchronous.arena.strategy.usable_cores", lambda: cores)
    monkeypatch.setattr("unisono.training.epoch_end.shard_overhead", lambda *given: 1.0)
    recipe = RECIPE.with_options(**options)
    most = FAULTS if recipe.faults.respawn else recipe.ranks.count - 1
    kinds = (KILL, KILL, STOP, TWICE, WHILE_STOPPED) if recipe.faults.respawn else (KILL, STOP)
    habits = Habits(per_second=12, most=most, kinds=kinds, stop_s=0.02)
    mark = wait_for_a_fault(monkeypatch)
    with Run(partial(work, recipe), tmp_path / "log") as run:
        faults = torment(run, random.Random(recipe.ranks.count + cores), habits)
        run.running(90.0)  # for a crowded machine
        assert run.status is not None, f"it hangs after {faults}"
        assert run.code() == 0, (tmp_path / "log").read_text()
    assert mark[0]
