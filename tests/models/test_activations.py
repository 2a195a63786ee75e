from math import erf, exp, pi, sqrt

import numpy as np
import pytest

from unisono.models.activations import GELU
from unisono.models.layers import Room

X = np.concatenate([np.linspace(-13, 13, 20_001), [-40.0, -1e-30, 0.0, 1e-30, 40.0]])


@pytest.mark.parametrize(("dtype", "near"), [(np.float64, 3e-8), (np.float32, 3e-7)])
def test_it_is_the_exact_one(dtype, near):
    x = X.astype(dtype)[np.newaxis, np.newaxis]  # (1, 1, n)
    nothing = np.empty(0, dtype)
    opened = GELU().open(Room(x.shape, nothing, nothing, nothing, []))
    y = opened.forward(x)[0, 0]
    slope = opened.backward(np.ones_like(x))[0, 0]
    points = [float(point) for point in x[0, 0]]
    below = np.array([0.5 * (1 + erf(point / sqrt(2))) for point in points])
    density = np.array([exp(-point * point / 2) / sqrt(2 * pi) for point in points])
    scale = np.maximum(1, np.abs(points))
    assert (np.abs(y - points * below) / scale).max() < near
    assert np.abs(slope - (below + points * density)).max() < near
    assert y.dtype == slope.dtype == dtype
