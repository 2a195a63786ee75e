"""Asynchronous training in one process has the weights of real ranks: a table made of it says what ranks would do."""

import pytest
from in_turn import train_in_turn

from unisono.errors import UnisonoError
from unisono.messages.rank_reports import EpochRecord
from unisono.recipe import Recipe
from unisono.runs.supervised_training import RunPlaces, SupervisedRun
from unisono.training.job import prepare

RECIPE = {"model": "mlp:16", "strategy": "async", "ranks": 4, "masters": 1, "batch_size": 32, "epochs": 2, "lr": 0.5}


@pytest.mark.parametrize("rule", ["safe", "softsync", "plain", "scaled", "delay-compensated"])
def test_weights_accuracy_and_staleness_are_those_of_real_ranks(rule):
    job = prepare(Recipe.from_options(order="round-robin", staleness_rule=rule, optimizer="sgd", **RECIPE))
    records = []
    outcome = SupervisedRun(job, RunPlaces()).train(lambda rank, value: records.append(value))
    real = next(found for found in outcome.results.values() if "weights_sha256" in found)
    alone = train_in_turn(job)
    assert (alone.weights_sha256, alone.accuracy) == (real["weights_sha256"], pytest.approx(real["test_accuracy"]))
    stale = [record.metrics["staleness_mean"] for record in records if isinstance(record, EpochRecord)]
    assert alone.staleness == pytest.approx(sum(stale) / len(stale))


@pytest.mark.parametrize("given", [{"order": "free"}, {"deal": "dynamic"}, {"model": "bn-mlp"}, {"dropout": 0.5}])
def test_what_it_cannot_do_is_refused(given):
    recipe = Recipe.from_options(**{**RECIPE, "order": "round-robin", "optimizer": "sgd", **given})
    with pytest.raises(UnisonoError, match="only --order round-robin"):
        train_in_turn(prepare(recipe))
