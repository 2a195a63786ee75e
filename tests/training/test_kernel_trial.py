"""The promise of a run is tried before it is made."""

import threading

import pytest

from unisono.models.chain import Chain
from unisono.recipe import Recipe
from unisono.training import kernel_trial
from unisono.training.job import Job, prepare
from unisono.training.kernel_trial import kernel_dependences, try_kernels

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
    job = prepare(Recipe.from_options(**(ODD | options)))
    assert try_kernels(job) == []
    assert kernel_dependences(job) == []


@pytest.fixture
def by_position(monkeypatch):
    """A processor whose products depend on where in a group a shard stands."""
    compute = Chain.loss_and_grad

    def spoilt(self, x, y, grads, *rest):
        found = compute(self, x, y, grads, *rest)
        grads[1:] *= 1.5
        return found

    monkeypatch.setattr(Chain, "loss_and_grad", spoilt)


def test_a_processor_that_breaks_it_is_found(by_position):
    job = prepare(Recipe.from_options(**ODD))
    assert "the position in a group of 2" in try_kernels(job)
    assert kernel_dependences(job) in (try_kernels(job), []), "given up on a busy machine"


def test_long_shards_are_tried_with_few_samples(monkeypatch):
    sizes = []
    compute = Chain.loss_and_grad

    def noted(self, x, *rest):
        sizes.append(x.shape[1])
        return compute(self, x, *rest)

    job = prepare(Recipe.from_options(**(ODD | {"batch_size": 96, "shards": 2})))
    monkeypatch.setattr(Chain, "loss_and_grad", noted)
    monkeypatch.setattr(kernel_trial.time, "perf_counter", iter([0.0, 1.0, 1.0, 1.04]).__next__)
    assert try_kernels(job) == []
    assert set(sizes) == {2, 3}


def test_shards_that_take_longer_still_are_not_tried(monkeypatch, by_position):
    monkeypatch.setattr(kernel_trial, "BUDGET_S", 0.0)
    assert try_kernels(prepare(Recipe.from_options(**ODD))) == []


def test_a_trial_that_takes_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr(kernel_trial, "LIMIT_S", 0.2)
    monkeypatch.setattr(kernel_trial, "try_kernels", lambda job: threading.Event().wait(100))
    assert kernel_dependences(prepare(Recipe.from_options(**ODD))) == []


def test_networks_that_fill_the_memory_are_not_tried(monkeypatch, by_position):
    monkeypatch.setattr(kernel_trial, "available_bytes", lambda: 1000)
    assert try_kernels(prepare(Recipe.from_options(**ODD))) == []


def test_the_process_that_forks_ranks_computes_nothing(monkeypatch):
    """Gradients may start threads of torch's, and then no rank could be forked."""
    job = prepare(Recipe.from_options(**ODD))
    monkeypatch.setattr(kernel_trial, "run", lambda work, ranks, start: [["seen"]])
    monkeypatch.setattr(Job, "model", lambda self: pytest.fail("computed"))
    assert kernel_dependences(job) == ["seen"]


def test_where_nothing_is_promised_nothing_is_tried(monkeypatch):
    job = prepare(Recipe.from_options(**(ODD | {"allreduce": "ring"})))
    monkeypatch.setattr(kernel_trial, "run", lambda *given, **named: pytest.fail("tried"))
    assert kernel_dependences(job) == []
