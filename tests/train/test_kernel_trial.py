"""The promise of a run is tried before it is made."""

import pytest

from unisono.models.chain import Chain
from unisono.recipe import Recipe
from unisono.train import kernel_trial
from unisono.train.job import Job, prepare
from unisono.train.kernel_trial import kernel_dependences

ODD = {"data": "synthetic:classes=5,rows=101,features=13,test_rows=3", "batch_size": 24, "ranks": 2}


@pytest.mark.parametrize(
    "options",
    [
        {"model": "mlp:7,5", "dropout": 0.25},
        {"model": "bn-mlp:7", "batch_size": 3},
        {"model": "linear", "data": "synthetic:regression,rows=31,features=1"},
        {"strategy": "local"},
        {"batch_size": 1, "ranks": 1},
        {"batch_size": 1000},
    ],
)
def test_nothing_is_found_where_the_promise_holds(options):
    assert kernel_dependences(prepare(Recipe(**(ODD | options)))) == []


def test_a_processor_that_breaks_it_is_found(monkeypatch):
    compute = Chain.loss_and_grad

    def by_position(self, x, y, grads, *rest):
        found = compute(self, x, y, grads, *rest)
        grads[1:] *= 1.5
        return found

    monkeypatch.setattr(Chain, "loss_and_grad", by_position)
    assert "the position in a group of 2" in kernel_dependences(prepare(Recipe(**ODD)))


def test_long_shards_are_tried_with_few_samples(monkeypatch):
    sizes = []
    compute = Chain.loss_and_grad

    def noted(self, x, *rest):
        sizes.append(x.shape[1])
        return compute(self, x, *rest)

    monkeypatch.setattr(Chain, "loss_and_grad", noted)
    monkeypatch.setattr(kernel_trial, "BUDGET_S", 0.0)
    assert kernel_dependences(prepare(Recipe(**(ODD | {"batch_size": 96, "shards": 2})))) == []
    assert set(sizes) == {2, 3}


def test_where_nothing_is_promised_nothing_is_tried(monkeypatch):
    job = prepare(Recipe(**(ODD | {"allreduce": "ring"})))
    monkeypatch.setattr(Job, "model", lambda self: pytest.fail("computed"))
    assert kernel_dependences(job) == []
