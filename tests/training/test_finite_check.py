"""What diverged is no result: not as weights, not as a snapshot, not as the end of a run."""

import json
import os
import re
import signal
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import unisono
from support.training.snapshot_waits import every_snapshot
from unisono.errors import RankFailed, UnisonoError
from unisono.models.nets import build
from unisono.recipe import Recipe
from unisono.runs.early_end import Halted
from unisono.runs.launched_training import train_launched
from unisono.runs.lifecycle import run_recipe
from unisono.runs.supervised_training import RunPlaces, SupervisedRun
from unisono.storage.snapshots.snapshot import listed
from unisono.training.finite_check import FiniteCheck, NotFiniteTensor
from unisono.training.job import Job, prepare
from unisono.training.trainer import Learner
from unisono.training.trainer import train as train_rank
from unisono.world import World

pytestmark = pytest.mark.usefixtures("no_price")

SMALL = Recipe.from_options(
    ranks=2, model="bn-mlp:7", data="synthetic:classes=3,rows=101,features=13,test_rows=29", batch_size=24, epochs=2,
    shards=3, keep=99,
)  # fmt: skip
STEPS = 5  # an epoch
WAYS = {
    "sync": {},
    "torch": {"engine": "torch"},
    "local": {"strategy": "local", "sync_every": 3},
    "async": {"strategy": "async", "shards": 0, "batch_size": 23, "ranks": 3},
}


def poison(monkeypatch: pytest.MonkeyPatch, value: float, *, epoch: int, step: int, buffers: bool = False) -> None:
    """After that step a value of what was learnt is another one, on every rank that comes to its end."""
    real = Learner.step

    def work(learner: Learner, position: int, at_epoch: int, at_step: int) -> None:
        real(learner, position, at_epoch, at_step)
        if (at_epoch, at_step) == (epoch, step):
            strategy = learner._strategy
            (strategy.buffers if buffers else strategy.params)[3] = value

    monkeypatch.setattr(Learner, "step", work)


def supervised(job: Job, folder: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    SupervisedRun(job, RunPlaces(folder / "weights.safetensors", folder)).train(
        lambda rank, value: None, lambda event: events.append(event.to_json())
    )
    return events


def unwatched(job: Job, folder: Path) -> None:
    places = RunPlaces(folder / "weights.safetensors", folder)
    unisono.run(lambda world: train_launched(world, job, places), job.recipe.ranks.count)


def last_step(job: Job) -> int:
    return job.plan.steps_per_epoch - 1


@pytest.mark.parametrize("epoch", [1, 2])
@pytest.mark.parametrize("way", WAYS)
def test_a_last_step_that_diverges_fails_the_run_and_leaves_the_weights_before_it(way, epoch, tmp_path, monkeypatch):
    if way == "torch":
        pytest.importorskip("torch")
    job = prepare(SMALL.with_options(**WAYS[way]))
    poison(monkeypatch, np.nan, epoch=epoch, step=last_step(job))
    with pytest.raises(RankFailed) as failed:
        supervised(job, tmp_path)
    kept = r"; the weights of epoch 1 are kept" if epoch == 2 else ""
    told = rf"1 of \d+ values of \S+ are not finite after the last step of epoch {epoch}{kept}\nHINT: lower --lr"
    assert re.match(told, failed.value.user_message)
    assert failed.value.exit_code == 1
    if epoch == 1:
        assert not (tmp_path / "weights.safetensors").exists()
    else:
        assert all(np.isfinite(array).all() for array in load_file(tmp_path / "weights.safetensors").values())


@pytest.mark.parametrize(
    "options", [{"allreduce": "ring"}, {"allreduce": "arena"}, WAYS["async"]], ids=["ring", "arena", "async messages"]
)
def test_ranks_of_other_launchers_find_it_alike(options, tmp_path, monkeypatch):
    job = prepare(SMALL.with_options(**options))
    poison(monkeypatch, -np.inf, epoch=2, step=last_step(job))
    found: list[str] = []

    def work(world: World) -> None:
        try:
            train_launched(world, job, RunPlaces(tmp_path / "weights.safetensors"))
        except NotFiniteTensor as error:
            world.report({"found": str(error)})

    def hear(rank: int, value: dict[str, Any]) -> None:
        found.extend([value["found"]] if isinstance(value, dict) else [])

    unisono.run(work, job.recipe.ranks.count, on_report=hear, timeout_s=30.0)
    assert len(found) == job.recipe.ranks.count
    assert len(set(found)) == 1
    assert "not finite after the last step of epoch 2; the weights of epoch 1 are kept" in found[0]


def test_running_statistics_count_as_well(tmp_path, monkeypatch):
    poison(monkeypatch, np.inf, epoch=1, step=STEPS - 1, buffers=True)
    with pytest.raises(RankFailed, match=r"1 of 7 values of \S*running_mean are not finite after the last step"):
        supervised(prepare(SMALL), tmp_path)


def test_a_real_divergence_in_the_only_step_is_told(tmp_path):
    """The loss is that of before the step, and finite."""
    rng = np.random.default_rng(0)
    x, y = 1000 * rng.standard_normal((37, 13)).astype(np.float32), rng.standard_normal((37, 1)).astype(np.float32)
    np.savez(tmp_path / "data.npz", train_x=x, train_y=y)
    options = {"model": "linear", "data": str(tmp_path / "data.npz"), "lr": 1e37, "normalise": "none", "epochs": 1}
    options |= {"batch_size": "full", "optimizer": "sgd", "snapshot_every": "1steps", "out": str(tmp_path / "run")}
    told = r"\d+ of 13 values of W are not finite after the last step of epoch 1\n(.|\n)*HINT: lower --lr \(1e\+37\)"
    with pytest.raises(UnisonoError, match=told) as failed:
        run_recipe(Recipe.from_options(**options))
    assert failed.value.exit_code == 1
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "failed"
    assert not (tmp_path / "run" / "weights.safetensors").exists()
    assert listed(tmp_path / "run" / "snapshots") == []


def test_others_wrappers_write_no_such_weights_either(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    job = prepare(SMALL.with_options(strategy="ddp", engine="torch", shards=2))
    poison(monkeypatch, np.nan, epoch=1, step=last_step(job))

    def work(world: World) -> None:
        train_rank(world, job, tmp_path / "weights.safetensors")

    with pytest.raises(RankFailed, match="not finite after the last step of epoch 1"):
        unisono.run(work, 2, start="fork")
    assert not (tmp_path / "weights.safetensors").exists()


def test_a_snapshot_of_it_is_not_made(tmp_path, monkeypatch):
    """In the middle of an epoch; the step after it finds a loss that is no number."""
    poison(monkeypatch, np.nan, epoch=2, step=2)
    job = prepare(SMALL.with_options(snapshot_every="2steps"))
    events: list[dict[str, Any]] = []
    with every_snapshot(), pytest.raises(RankFailed, match="the loss became nan in epoch 2, step 4"):
        SupervisedRun(job, RunPlaces(snapshots=tmp_path)).train(
            lambda rank, value: None, lambda event: events.append(event.to_json())
        )
    positions = [int(path.name.partition("-")[2]) for path in listed(tmp_path)]
    assert max(positions) == STEPS + 1 + 1  # after the first step of the second epoch
    refused = [event for event in events if event["path"] is None]
    assert [event["position"] for event in refused] == [STEPS + 1 + 3]
    assert "not finite after step 3 of epoch 2: no snapshot is made of it" in refused[0]["cause"]


@pytest.mark.parametrize("train", [supervised, unwatched])
def test_who_is_asked_to_end_after_it_is_told_that_nothing_can_be_saved(train, tmp_path, monkeypatch):
    poison(monkeypatch, np.nan, epoch=1, step=2)
    real, found = Learner.step, []

    def work(learner: Learner, position: int, epoch: int, step: int) -> None:
        if (epoch, step) == (1, 2):
            learner._strategy.ask_to_halt()
        real(learner, position, epoch, step)

    monkeypatch.setattr(Learner, "step", work)
    try:
        train(prepare(SMALL), tmp_path)
    except (Halted, RankFailed) as error:
        found = [str(error), error.exit_code]
    assert "not finite after step 3 of epoch 1: no snapshot is made of it\nHINT: lower --lr" in found[0]
    assert found[1] == 1
    assert listed(tmp_path) == []


def test_constants_that_were_never_finite_and_integers_are_no_divergence():
    torch = pytest.importorskip("torch")
    from unisono.models.torch.flat_views import FlatViews

    module = torch.nn.Linear(13, 5)
    module.norm = torch.nn.BatchNorm1d(7, affine=False)
    module.register_buffer("mask", torch.full((5, 5), -torch.inf).triu(1))
    module.register_buffer("unknown", torch.full((3,), torch.nan))
    module.register_buffer("last", torch.tensor([-1, -1]))  # as float32 words that is NaN
    module.register_buffer("total", torch.zeros(2, dtype=torch.float64))
    vectors = FlatViews(module, set())
    params, buffers = np.zeros(vectors.layout.length + 9, "f4"), np.zeros(vectors.buffers_layout.length, "f4")
    vectors.write(module, params, buffers)
    params[vectors.layout.length :] = np.nan  # padding
    check = partial(FiniteCheck(vectors, params, buffers), params, buffers, "after epoch 3", hint="stop")
    check()
    check(state=[np.array([1.0, np.inf], "f4")])
    with pytest.raises(NotFiniteTensor, match=r"the optimizer's state holds NaN after epoch 3\nHINT: stop"):
        check(state=[np.zeros(2, "f4"), np.array([1.0, np.nan], "f4")])
    vectors.named(params, buffers)[1]["total"][0] = -np.inf  # a mask that is filled later
    check()
    vectors.named(params, buffers)[1]["total"][1] = np.nan
    with pytest.raises(NotFiniteTensor, match="1 of 2 values of total are not finite after epoch 3"):
        check()
    vectors.named(params, buffers)[1]["total"][1] = 0.0
    vectors.named(params, buffers)[1]["norm.running_var"][3] = np.inf
    with pytest.raises(NotFiniteTensor, match=r"1 of 7 values of norm\.running_var are not finite after epoch 3"):
        check()
    vectors.named(params, buffers)[0]["weight"][1:] = np.nan
    with pytest.raises(NotFiniteTensor, match="52 of 65 values of weight are not finite"):
        check()


@pytest.mark.parametrize("place", [0, 65535, 65536, 65537, -1])
def test_every_place_is_looked_at(place):
    model = build("linear", 10007, 13)
    params, buffers = np.zeros(model.layout.length, "f4"), np.zeros(0, "f4")
    check = FiniteCheck(model, params, buffers)
    params[place] = np.inf
    with pytest.raises(NotFiniteTensor, match=r"1 of (130091|13) values of [Wb]"):
        check(params, buffers, "now", hint="")


def own_loop(world: World, folder: Path, every: str, ask: bool) -> None:
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(13, 1)
    model, optimizer = world.share(model, torch.optim.SGD(model.parameters(), lr=0.1))
    unisono.keep(world, folder, every=every)
    x = torch.randn(23, 13)
    for batch in world.batches((x, x[:, :1]), batch_size=23, epochs=3):
        for part, target in batch:
            world.backward(torch.nn.functional.mse_loss(model(part), target))
        optimizer.step()
        world.sharing.shared.params[5] = np.nan  # as an update that overflows leaves it
        if ask:
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_loop_of_one_s_own_keeps_no_such_snapshot(tmp_path):
    pytest.importorskip("torch")

    def work(world: World) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            own_loop(world, tmp_path, "1steps", ask=False)
        return [str(warning.message) for warning in caught]

    (told,) = unisono.run(work, 1, start="fork")
    assert "1 of 13 values of weight are not finite after 1 steps: no snapshot is made of it" in told[0]
    assert listed(tmp_path) == []


def test_a_loop_of_one_s_own_that_is_asked_to_end_says_why_it_keeps_nothing(tmp_path):
    pytest.importorskip("torch")
    told = r"not finite after \d steps: no snapshot is made of it\nHINT: lower the learning rate"
    with pytest.raises(RankFailed, match=told) as failed:
        unisono.run(lambda world: own_loop(world, tmp_path, "", ask=True), 2, start="fork")
    assert failed.value.exit_code == 1
    assert listed(tmp_path) == []
