"""Slow on purpose: by sleeping, by the factor asked for, and with the numbers of the model inside."""

from types import SimpleNamespace

import numpy as np
import pytest

from unisono.errors import UserError
from unisono.models.base import Model, Part
from unisono.models.nets import build
from unisono.models.wrappers import Slowed, Wrapper, parse_slow

OVERSHOOT_S = 0.05


class Clock:
    """Time that passes only where something takes time; sleeps take longer than asked for, as real ones do."""

    def __init__(self) -> None:
        self.now = self.slept = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds + OVERSHOOT_S
        self.slept += seconds + OVERSHOOT_S


class Timed(Wrapper):
    """Each call takes a second, half of it on an exchange where there is one."""

    def __init__(self, inner: Model, clock: Clock) -> None:
        super().__init__(inner)
        self.clock, self.waited_s = clock, 0.0

    def loss_and_grad(self, *given):
        self.clock.now += 1.0
        return super().loss_and_grad(*given)

    def loss_and_grad_together(self, *given):
        self.clock.now += 0.5
        self.waited_s += 0.5
        return super().loss_and_grad_together(*given)

    def evaluate(self, *given):
        self.clock.now += 1.0
        return super().evaluate(*given)

    @property
    def exchange_s(self) -> float:
        return self.waited_s


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(
        "unisono.models.wrappers.time", SimpleNamespace(perf_counter=clock.perf_counter, sleep=clock.sleep)
    )
    return clock


RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((2, 5, 6)).astype(np.float32), RNG.integers(0, 3, (2, 5))


def bound(model: Model) -> Model:
    params, buffers = np.zeros(model.layout.length, np.float32), np.zeros(model.buffers_layout.length, np.float32)
    model.init(params, buffers, np.random.default_rng(1))
    model.bind(params, buffers)
    return model


@pytest.mark.parametrize("factor", [1.5, 4.0])
def test_every_call_takes_so_many_times_as_long(clock, factor):
    model = bound(Slowed(Timed(build("bn-mlp:4", 6, 3), clock), factor))
    grads = np.zeros((2, model.layout.length), np.float32)
    for _ in range(10):
        model.loss_and_grad(X, Y, grads, 0.1)
        model.evaluate(X, Y)
    # A sleep that was too long is taken off the next: only the last one's excess is left.
    assert clock.now == pytest.approx(20 * factor + OVERSHOOT_S)
    assert clock.slept == pytest.approx(20 * (factor - 1) + OVERSHOOT_S)


def test_the_waits_for_other_shards_are_not_multiplied(clock):
    model = bound(Slowed(Timed(build("mlp:4", 6, 3), clock), 3.0))
    grads = np.zeros((2, model.layout.length), np.float32)
    model.loss_and_grad_together([Part(X, Y, grads)], 0.1)
    assert clock.slept == 0.0  # all of it was waiting
    model.loss_and_grad(X, Y, grads, 0.1)
    assert clock.slept == pytest.approx(2.0 + OVERSHOOT_S)


def test_the_numbers_are_those_of_the_model_inside():
    plain, slow = bound(build("bn-mlp:4", 6, 3)), bound(Slowed(build("bn-mlp:4", 6, 3), 1.01))
    found = []
    for model in (plain, slow):
        grads = np.zeros((2, model.layout.length), np.float32)
        sums = model.loss_and_grad(X, Y, grads, 0.1)
        found.append((grads.tobytes(), sums.loss_sum.tobytes(), sums.new_buffers.tobytes()))
    assert found[0] == found[1]
    names = ["layout", "buffers_layout", "unaveraged", "fixed", "may_skip_params", "exchange_width", "classifies"]
    for name in [*names, "state_names"]:
        assert getattr(slow, name) == getattr(plain, name), name
    params, buffers = np.arange(slow.layout.length), np.arange(slow.buffers_layout.length)
    assert [list(part) for part in slow.named(params, buffers)] == [list(part) for part in plain.named(params, buffers)]


def test_ranks_and_factors():
    assert parse_slow("", 2) == {}
    assert parse_slow("1:4", 2) == {1: 4.0}
    assert parse_slow("0:1.5,3:2", 4) == {0: 1.5, 3: 2.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2:4", "--slow 2:4: there is no rank 2\nHINT: ranks are 0 to 1 here; --slow '' for none"),
        ("-1:4", "there is no rank -1"),
        ("1:0.5", "--slow 1:0.5: a factor of 0.5\nHINT: give 1 or more"),
        ("1:nan", "a factor of nan"),
        ("1:inf", "a factor of inf"),
        ("1", "'1' is not RANK:FACTOR"),
        ("x:4", "'x:4' is not RANK:FACTOR"),
        ("0:2,", "'' is not RANK:FACTOR"),
        ("1:2,1:3", "rank 1 is there twice"),
    ],
)
def test_mistakes_are_named(text, message):
    with pytest.raises(UserError, match=message):
        parse_slow(text, 2)
