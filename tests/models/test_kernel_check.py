"""What NumPy's kernels are assumed to do, tried; and that a dependence would be found."""

import time

import numpy as np
import pytest

from unisono.models.base import ShardSums
from unisono.models.kernel_check import QUICK, THOROUGH, dependences, numpy_cases, samples
from unisono.models.nets import build
from unisono.models.wrappers import Wrapper

SEED = time.time_ns() % 2**32


@pytest.mark.parametrize("name", numpy_cases(0))
def test_a_shard_has_the_same_bits_wherever_it_is_computed(name):
    for seed in range(SEED, SEED + 4):
        case = numpy_cases(seed)[name]
        assert dependences(case.make(), *case[1:], THOROUGH) == [], f"seed {seed}"


class Dependent(Wrapper):
    """A network whose gradient is moved by the last bit when `when(its call)` says so."""

    def __init__(self, inner, when):
        super().__init__(inner)
        self._when, self._calls, self._address = when, 0, 0

    def bind(self, params, buffers):
        super().bind(params, buffers)
        self._address = params.ctypes.data

    def loss_and_grad(self, x, y, grads, scale, noise=None):
        found: ShardSums = super().loss_and_grad(x, y, grads, scale, noise)
        self._calls += 1
        if self._when(x, self._address, self._calls):
            grads[-1, 0] = np.nextafter(grads[-1, 0], np.float32(np.inf))
        return found


@pytest.mark.parametrize(
    ("trials", "told", "when"),
    [
        (QUICK, "the position in a group of 2", lambda x, address, calls: len(x) > 1),
        (THOROUGH, "the address of its samples (60 bytes", lambda x, address, calls: x.ctypes.data % 64 == 60),
        (QUICK, "the address of its parameters (64 bytes", lambda x, address, calls: address % 128 == 64),
        (QUICK, "whether it is computed for the first time", lambda x, address, calls: calls == 1),
    ],
)
def test_a_dependence_is_found(trials, told, when):
    x, y = samples((3, 13), 5, seed=1)
    model = Dependent(build("mlp:7", 13, 5), when)
    found = dependences(model, x, y, samples((5, 13), 5, seed=2), trials)
    assert any(what.startswith(told) for what in found), found


def test_what_was_computed_before_is_found():
    x, y = samples((3, 13), 5, seed=1)
    sizes: list[int] = []

    def when(array, address, calls):
        sizes.append(array.shape[1])
        return 5 in sizes and array.shape[1] == 3

    model = Dependent(build("mlp:7", 13, 5), when)
    assert dependences(model, x, y, samples((5, 13), 5, seed=2), QUICK) == ["what was computed before"]
