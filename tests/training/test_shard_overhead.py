"""The price of shards: what it calls and what it leaves alone; never how long something took."""

import numpy as np
import pytest

from unisono.models.nets import build
from unisono.training import shard_overhead as module
from unisono.training.shard_overhead import shard_overhead


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
    monkeypatch.setattr(module, "BUDGET_S", 0.002)
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
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])
    model = Clocked(ready("mlp:8")[0], clock)
    assert shard_overhead(model, *samples(4, 5)) == 5.0 / 2.0
    assert model.shapes == [(4, 5, 6), (1, 20, 6)] * 2  # one to get warm, one that counts: the budget is spent


def test_one_shard_costs_nothing():
    model = Clocked(ready("mlp:8")[0], [0.0])
    assert shard_overhead(model, *samples(1, 5)) == 1.0
    assert model.shapes == []
