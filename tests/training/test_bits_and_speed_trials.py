"""Trials of the machine before a run: they find what depends on it; prices name calls, never how long one took."""

import threading

import numpy as np
import pytest

from unisono.models.chain import Chain
from unisono.models.nets import build
from unisono.recipe import Recipe
from unisono.training import bits_and_speed_trials
from unisono.training.bits_and_speed_trials import kernel_dependences, precision_notes, shard_overhead, try_kernels
from unisono.training.job import Job, prepare

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
    monkeypatch.setattr(bits_and_speed_trials.time, "perf_counter", iter([0.0, 1.0, 1.0, 1.04]).__next__)
    assert try_kernels(job) == []
    assert set(sizes) == {2, 3}


@pytest.mark.parametrize(
    ("name", "value"), [("SHARD_S", 0.0), ("available_bytes", lambda: 1000)], ids=["slower still", "fill the memory"]
)
def test_shards_and_networks_that_are_too_large_are_not_tried(monkeypatch, by_position, name, value):
    monkeypatch.setattr(bits_and_speed_trials, name, value)
    assert try_kernels(prepare(Recipe.from_options(**ODD))) == []


def test_a_trial_that_takes_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr(bits_and_speed_trials, "TRIAL_LIMIT_S", 0.2)
    monkeypatch.setattr(bits_and_speed_trials, "try_kernels", lambda job: threading.Event().wait(100))
    assert kernel_dependences(prepare(Recipe.from_options(**ODD))) == []


def test_the_process_that_forks_ranks_computes_nothing(monkeypatch):
    """Gradients may start threads of torch's, and then no rank could be forked."""
    job = prepare(Recipe.from_options(**ODD))
    monkeypatch.setattr(bits_and_speed_trials, "run", lambda work, ranks, start: [["seen"]])
    monkeypatch.setattr(Job, "model", lambda self: pytest.fail("computed"))
    assert kernel_dependences(job) == ["seen"]


def test_where_nothing_is_promised_nothing_is_tried(monkeypatch):
    job = prepare(Recipe.from_options(**(ODD | {"allreduce": "ring"})))
    monkeypatch.setattr(bits_and_speed_trials, "run", lambda *given, **named: pytest.fail("tried"))
    assert kernel_dependences(job) == []


torch = pytest.importorskip("torch")
QUICK = {"data": "synthetic:classes=4,rows=64,features=64,test_rows=0", "model": "mlp:64", "batch_size": 64}


@pytest.mark.parametrize(
    ("precision", "flags", "warned"), [("fp32", set(), False), ("bf16", {"avx512_bf16"}, False), ("bf16", set(), True)]
)
def test_a_processor_without_the_instructions_is_warned_of_with_what_was_measured(
    monkeypatch, precision, flags, warned
):
    monkeypatch.setattr(bits_and_speed_trials, "cpu_flags", lambda: flags)
    monkeypatch.setattr(bits_and_speed_trials, "_compare", lambda job: (3.25, False))
    notes = precision_notes(prepare(Recipe.from_options(**QUICK, precision=precision)))
    assert len(notes) == warned
    assert all("3.2 times as long" in note and "HINT: use --precision fp32" in note for note in notes)


def test_no_threads_are_started_whatever_the_recipe_says():
    """Ranks are forked afterwards."""
    torch.set_num_threads(1)
    bits_and_speed_trials._compare(prepare(Recipe.from_options(**QUICK, precision="bf16", threads=2)))
    assert torch.get_num_threads() == 1


def test_bits_are_compared_for_real():
    job = prepare(Recipe.from_options(**QUICK, precision="bf16"))
    slower, same = bits_and_speed_trials._compare(job)
    assert slower > 0
    assert not same  # products in bf16 are others
    _, same = bits_and_speed_trials._compare(prepare(Recipe.from_options(**QUICK, engine="torch")))
    assert same  # fp32 against fp32


def ready(name: str, dropout: float = 0.0):
    model = build(name, features=6, outputs=3, dropout=dropout)
    params = np.empty(model.layout.length, np.float32)
    buffers = np.empty(model.buffers_layout.length, np.float32)
    model.init(params, buffers, np.random.default_rng(0))
    model.bind(params, buffers)
    return model, params, buffers


def samples(k: int, b: int, regression: bool = False):
    rng = np.random.default_rng(1)
    y = rng.standard_normal((k, b, 3)).astype(np.float32) if regression else rng.integers(0, 3, (k, b))
    return rng.standard_normal((k, b, 6)).astype(np.float32), y


@pytest.mark.parametrize(("name", "dropout"), [("mlp:8", 0.0), ("mlp:8", 0.5), ("bn-mlp:8", 0.0), ("linear", 0.0)])
def test_a_price_is_found_and_nothing_changes(monkeypatch, name, dropout):
    monkeypatch.setattr(bits_and_speed_trials, "OVERHEAD_S", 0.002)
    model, params, buffers = ready(name, dropout)
    before = params.copy(), buffers.copy()
    price = shard_overhead(model, *samples(4, 5, regression=name == "linear"))
    assert 0 < price < np.inf
    assert np.array_equal(params, before[0])
    assert np.array_equal(buffers, before[1])


class Clocked:
    """A model whose calls take one second a shard, and a second more."""

    def __init__(self, model, clock: list[float]) -> None:
        self.layout, self._model, self._clock = model.layout, model, clock
        self.shapes: list[tuple[int, ...]] = []

    def loss_and_grad(self, x, y, grads, scale, noise=None):
        self.shapes.append(x.shape)
        self._clock[0] += 1.0 + len(x)
        return self._model.loss_and_grad(x, y, grads, scale, noise)


def test_the_price_is_the_ratio_of_the_two(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(bits_and_speed_trials.time, "perf_counter", lambda: clock[0])
    model = Clocked(ready("mlp:8")[0], clock)
    assert shard_overhead(model, *samples(4, 5)) == 5.0 / 2.0
    assert model.shapes == [(4, 5, 6), (1, 20, 6)] * 2  # one to get warm, one that counts: the budget is spent


def test_one_shard_costs_nothing():
    model = Clocked(ready("mlp:8")[0], [0.0])
    assert shard_overhead(model, *samples(1, 5)) == 1.0
    assert model.shapes == []
