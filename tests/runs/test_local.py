"""Whole runs of replicas: same bits on any number of ranks, however they were started, halted and resumed."""

import os
import signal
from typing import Any

import pytest

import unisono
from support.faults.trials import quiet, resume, run
from support.training.snapshot_waits import every_snapshot
from unisono.errors import RankFailed
from unisono.recipe import Recipe
from unisono.runs.early_end import Halted
from unisono.runs.recorder import _dealt
from unisono.runs.supervised_training import RunPlaces, SupervisedRun
from unisono.storage.snapshots.snapshot import listed, require_newest, verified
from unisono.strategies.arena.update import UpdateStep
from unisono.strategies.local.local_steps import LocalSteps
from unisono.training.job import prepare
from unisono.training.trainer import train

RECIPE = Recipe.from_options(
    ranks=2, model="bn-mlp:40", data="synthetic:classes=4,rows=90,features=8,test_rows=300", batch_size=16, epochs=3,
    dropout=0.2, optimizer="adam", strategy="local", sync_every=4,
)  # fmt: skip


@pytest.fixture(autouse=True)
def no_price(monkeypatch) -> None:
    """It must not be measured: replicas cannot be computed in one."""

    def never(*given: Any) -> float:
        raise AssertionError

    monkeypatch.setattr("unisono.training.epoch_end.shard_overhead", never)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"optimizer": "momentum", "lr": 0.1, "local_after": 1, "validation": 0.2},
        {"optimizer": "lars", "lr": 1.0, "clip": 1.0, "schedule": "cosine", "wire": "bf16"},
        {"optimizer": "sgd", "lr": 0.3, "sync_every": 100, "model": "mlp:20"},
    ],
    ids=str,
)
def test_bits_and_losses_do_not_depend_on_the_ranks(options):
    recipe = RECIPE.with_options(**options)
    for ranks in (2, 4, 8):
        run(recipe.with_options(ranks=ranks)).check(quiet(recipe))
    job = prepare(recipe.with_options(ranks=3))
    alone = unisono.run(lambda world: train(world, job, None), 3)
    assert {found["weights_sha256"] for found in alone} == {quiet(recipe).sha256}


def test_it_learns():
    recipe = Recipe.from_options(strategy="local", sync_every=4, optimizer="momentum", lr=0.1, ranks=2)
    assert run(recipe).epochs[0]["test_accuracy"] > 0.95


@pytest.mark.parametrize(("meeting", "before"), [(4, 0), (6, 4), (11, 7), (13, 11), (20, 18)])
@pytest.mark.parametrize("where", ["on their way to it", "in it"])
def test_if_all_ranks_die_the_run_goes_on_from_the_meeting_before(monkeypatch, tmp_path, meeting, before, where):
    def dying(method: Any, position_of: Any) -> Any:
        def called(*given: Any) -> Any:
            if position_of(given) == meeting:
                os.kill(os.getpid(), signal.SIGKILL)
            return method(*given)

        return called

    with monkeypatch.context() as patch:
        if where == "in it":
            patch.setattr(UpdateStep, "update", dying(UpdateStep.update, lambda given: given[1]))
        else:
            patch.setattr(LocalSteps, "open", dying(LocalSteps.open, lambda given: given[2]))
        with pytest.raises(Halted, match="no rank is left"):
            run(RECIPE.with_options(respawn=False), RunPlaces(snapshots=tmp_path))
    snapshot = require_newest(tmp_path)
    assert snapshot.position == before
    resume(RECIPE.with_options(ranks=3), snapshot)


def test_a_run_that_is_asked_to_end_does_so_at_the_next_meeting(tmp_path):
    supervised_run = SupervisedRun(prepare(RECIPE), RunPlaces(snapshots=tmp_path))
    supervised_run._shared.requests.ask_to_halt()
    with pytest.raises(Halted, match="was asked to end"):
        supervised_run.train(lambda rank, record: None)
    snapshot = require_newest(tmp_path)
    assert snapshot.position == 4, "replicas meet after the fourth and the sixth step of an epoch"
    resume(RECIPE.with_options(ranks=1), snapshot)


def test_snapshots_are_made_at_meetings_while_others_walk_on(tmp_path):
    with every_snapshot():
        found = run(RECIPE.with_options(snapshot_every="5steps", keep=9, ranks=3), RunPlaces(snapshots=tmp_path))
    found.check(quiet(RECIPE))
    snapshots = [verified(path) for path in reversed(listed(tmp_path))]
    # Wanted after steps 5, 10 and 15; and at the end.
    assert [snapshot.position for snapshot in snapshots] == [6, 11, 18, 21]
    for snapshot in snapshots[:3]:
        assert len(snapshot.arrays("state")) == 8 * 2  # Adam's two sums of each replica
        resume(RECIPE, snapshot)


def test_a_loss_that_is_not_finite_stops_with_a_hint():
    data = "synthetic:regression,rows=100,features=3"
    recipe = RECIPE.with_options(model="linear", dropout=0.0, data=data, optimizer="sgd", lr=1e30)
    with pytest.raises(RankFailed, match=r"the loss became .* in epoch 1, step 4, shard .\nHINT: lower --lr"):
        run(recipe)


def test_ranks_are_expected_to_contribute_what_their_replicas_have_seen():
    """The last meeting of an epoch stands for two steps: one of 16 samples in 8 shards, one of 10 in five."""
    assert _dealt(prepare(RECIPE.with_options(ranks=4))) == [8 / 26, 8 / 26, 6 / 26, 4 / 26]
    assert _dealt(prepare(RECIPE.with_options(ranks=2, strategy="sync", sync_every=""))) == [6 / 10, 4 / 10]
