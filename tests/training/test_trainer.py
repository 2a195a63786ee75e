"""Whole runs, in processes: same bits, early stop, evaluation that counts every sample once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import unisono
from unisono.data.dataset import PARTS
from unisono.errors import RankFailed, UserError
from unisono.messages.rank_reports import EpochRecord
from unisono.models.base import Model
from unisono.models.nets import build
from unisono.recipe import Recipe
from unisono.runs.supervised_training import RunPlaces, SupervisedRun
from unisono.strategies.messages.spec import make_sync_messages
from unisono.training.epoch_end import target_reached
from unisono.training.evaluate import blocks_of, measure_blocks, score_of
from unisono.training.job import prepare
from unisono.training.trainer import train

QUICK = Recipe.from_options(epochs=3)


def run(recipe: Recipe, weights: Path) -> tuple[dict, list[dict]]:
    """The summary and the epochs' metrics without the times, which differ from run to run."""
    job, epochs = prepare(recipe), []

    def on_report(rank, record):
        if not isinstance(record, EpochRecord):
            return
        epochs.append({k: v for k, v in record.metrics.items() if not k.endswith("_s")})

    found = unisono.run(lambda world: train(world, job, weights), recipe.ranks.count, on_report=on_report)
    for other in found:
        assert other["weights_sha256"] == found[0]["weights_sha256"]
    return found[0], epochs


@pytest.mark.parametrize(
    "options",
    [
        {"model": "bn-mlp", "optimizer": "lars", "lr": 1.0, "clip": 1.0, "weight_decay": 1e-4, "warmup_epochs": 1.0},
        {"dropout": 0.5, "schedule": "cosine", "batch_size": 100, "validation": 0.2, "slow": "0:1.2"},
        {"target_accuracy": 0.5, "patience": 1, "batch_size": "full", "optimizer": "nesterov", "lr": 0.5, "epochs": 9},
    ],
    ids=str,
)
def test_bits_and_losses_do_not_depend_on_the_ranks(tmp_path, options):
    outcomes = [run(QUICK.with_options(ranks=ranks, **options), tmp_path / f"{ranks}") for ranks in (1, 2, 3, 7)]
    for summary, epochs in outcomes[1:]:
        assert summary["weights_sha256"] == outcomes[0][0]["weights_sha256"]
        assert epochs == outcomes[0][1]  # to the last digit
        assert summary["stopped_early"] == outcomes[0][0]["stopped_early"]


STARTS = {
    "supervised": lambda job: SupervisedRun(job, RunPlaces()).train(lambda rank, record: None),
    "alone": lambda job: unisono.run(lambda world: train(world, job, None), job.recipe.ranks.count),
}


@pytest.mark.parametrize("start", STARTS)
def test_the_rank_that_is_named_is_the_slow_one(monkeypatch, start):
    def slowed(model: Model, factor: float) -> Model:
        raise ValueError(f"factor {factor:g}")

    monkeypatch.setattr("unisono.training.job.Slowed", slowed)
    job = prepare(QUICK.with_options(ranks=3, slow="1:4"))
    with pytest.raises(RankFailed, match="factor 4") as caught:
        STARTS[start](job)
    assert caught.value.rank == 1


def test_digits_are_learnt_and_the_weights_file_gives_the_same_score(tmp_path):
    recipe = Recipe.from_options(ranks=2)
    summary, _ = run(recipe, tmp_path / "w.safetensors")
    assert summary["test_accuracy"] >= 0.96
    model, data = build(recipe.model.name, 64, 10), prepare(recipe).dataset
    params = np.concatenate([load_file(tmp_path / "w.safetensors")[name].ravel() for name in model.layout.names])
    model.bind(params, np.empty(0, np.float32))
    found = model.evaluate(data.test_x[None], data.test_y[None])
    assert found.correct[0] / len(data.test_y) == summary["test_accuracy"]


def test_every_metric_is_global(tmp_path):
    """The weights hardly move, so the whole data, scored at once, tell what every printed number must be."""
    recipe = Recipe.from_options(
        data="synthetic:classes=4,rows=400,features=8", model="mlp:16", epochs=1, batch_size="full", lr=1e-9
    )
    summary, (metrics,) = run(recipe, tmp_path / "w")
    job = prepare(recipe)
    model = job.model()
    arrays = load_file(tmp_path / "w")
    model.bind(np.concatenate([arrays[name].ravel() for name in model.layout.names]), np.empty(0, np.float32))
    for part in PARTS:
        x, y = job.dataset.part(part)
        if len(x) and f"{part}_loss" in metrics:
            found = model.evaluate(x[None], y[None])
            assert metrics[f"{part}_loss"] == pytest.approx(found.loss_sum[0] / len(x), rel=1e-5)
            assert metrics[f"{part}_accuracy"] == pytest.approx(found.correct[0] / len(x))
    assert summary["samples"] == len(job.dataset.train_x)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_evaluation_counts_every_sample_once(ranks):
    job = prepare(QUICK)
    model = job.model()
    params = np.random.default_rng(0).standard_normal(model.layout.length).astype(np.float32)
    model.bind(params, np.empty(0, np.float32))
    x, y = job.dataset.part("train")

    def work(world):
        strategy = make_sync_messages(
            world.comm, model, job.optimizer, job.extent(), "native", np.random.default_rng(0)
        )
        model.bind(params, np.empty(0, np.float32))
        table = strategy.evaluate(1, blocks_of(x), measure_blocks(model, x, y), lambda table: None)
        score = score_of(table, len(x))
        return [score.loss, score.accuracy]

    whole = model.evaluate(x[None], y[None])
    found = unisono.run(work, ranks)
    assert all(other == found[0] for other in found)
    assert found[0][1] == whole.correct[0] / len(x)
    assert found[0][0] == pytest.approx(whole.loss_sum[0] / len(x), rel=1e-6)


def test_early_stop_needs_the_target_patience_times_in_a_row():
    found = (0.95, 0.89, 0.9, 0.9)
    assert [target_reached(found[: count + 1], 0.9, 2) for count in range(4)] == [False, False, False, True]
    assert not target_reached([1.0], 0.0, 1)


def huge(folder: Path) -> dict[str, Any]:
    """Targets whose squares are beyond what float32 holds, though they themselves are not."""
    np.savez(folder / "huge.npz", train_x=np.ones((32, 2), "f4"), train_y=np.full((32, 1), 3e38, "f4"))
    return {"data": str(folder / "huge.npz"), "normalise": "none", "shards": 1, "ranks": 1}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            lambda folder: {"data": "synthetic:regression,rows=100,features=3", "lr": 1e30, "ranks": 2},
            "HINT: lower --lr",
        ),
        (huge, "in epoch 1, step 1, .*\nHINT: nothing was learnt yet"),
    ],
    ids=["diverged", "before anything was learnt"],
)
def test_a_loss_that_is_not_finite_stops_with_a_hint(tmp_path, options, told):
    job = prepare(Recipe.from_options(model="linear", optimizer="sgd", **options(tmp_path)))
    with pytest.raises(RankFailed, match=rf"(?s)the loss became .*{told}"):
        unisono.run(lambda world: train(world, job, tmp_path / "w"), job.recipe.ranks.count)


@pytest.mark.parametrize(
    ("y", "hint"),
    [
        (np.eye(3)[[0, 1, 2, 0]], r"give class numbers \(y\.argmax\(axis=1\)\), not one-hot rows"),
        (np.ones((4, 2)), "use --model linear for numbers, .*FILE.py:FUNCTION"),
        (np.ones((4, 1)), "use --model linear for numbers, .*FILE.py:FUNCTION"),
    ],
    ids=["one-hot rows", "numbers", "a number"],
)
def test_numbers_for_a_classifier_are_refused_with_what_fits_them(y, hint, tmp_path):
    np.savez(tmp_path / "mine.npz", train_x=np.ones((4, 2)), train_y=y)
    with pytest.raises(UserError, match=f"which has numbers to predict\nHINT: {hint}"):
        prepare(Recipe.from_options(data=str(tmp_path / "mine.npz"), batch_size=4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 2, "ranks": 3}, "a batch of 2 samples for 3 ranks leaves ranks without work"),
        ({"shards": 2, "ranks": 3}, "--shards 2 is less than --ranks 3"),
        ({"model": "linear"}, "--model linear does not fit --data digits, which has classes"),
        ({"data": "digitz"}, "did you mean 'digits'"),
        ({"optimizer": "adamm"}, "did you mean 'adam"),
        ({"scale_lr": "linear"}, "without --batch-size-per-rank"),
        ({"slow": "2:4"}, "--slow 2:4: there is no rank 2"),
        ({"model": "mlp:x"}, "not a list of layer sizes"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_starts(options, message):
    with pytest.raises(UserError, match=f"(?s){message}"):
        prepare(Recipe.from_options(**options))
