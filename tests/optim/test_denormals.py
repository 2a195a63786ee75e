"""State that decays towards zero must not end as denormal numbers, which the processor computes very slowly."""

import numpy as np
import pytest

from unisono.optim import make
from unisono.optim.options import OptimizerOptions

LEAST_NORMAL = np.finfo(np.float32).tiny


@pytest.mark.parametrize(
    ("name", "betas"), [("momentum", None), ("nesterov", None), ("lars", None), ("adam", (0.9, 0.95))]
)
def test_a_dead_units_state_becomes_zero(name, betas):
    options = OptimizerOptions(name, lr=0.01, **({"betas": betas} if betas else {}))
    optimizer = make(options)
    params = np.ones(40_000, np.float32)
    grads = np.logspace(-15, 0, 40_000, dtype=np.float32)
    state = [np.zeros(40_000, np.float32) for _ in optimizer.state_names]
    optimizer.update(params, grads, state, 0.01, 1)
    assert all(vector.all() for vector in state)
    grads[:] = 0
    for step in range(2, 64 * 30 + 1):
        optimizer.update(params, grads, state, 0.01, step)
    assert not any(vector.any() for vector in state)


def test_without_flushing_it_would_not():
    """What the test above is about: the last denormal numbers round to themselves."""
    value = np.float32(1e-44)
    for _ in range(1000):
        value = value * np.float32(0.9)
    assert 0 < value < LEAST_NORMAL


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_small_gradients_are_kept(name):
    optimizer = make(OptimizerOptions(name, lr=0.01))
    grads = np.float32([1e-17, -1e-17, 1e-3])
    params = np.zeros(3, np.float32)
    state = [np.zeros(3, np.float32) for _ in optimizer.state_names]
    for step in range(1, 129):
        optimizer.update(params, grads, state, 0.01, step)
    assert all(vector.all() for vector in state)
