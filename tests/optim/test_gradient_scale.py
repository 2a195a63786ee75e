import math

import numpy as np
import pytest

from unisono.optim import make
from unisono.optim.base import UNSCALED
from unisono.optim.gradient_scale import Scaling, clip_factor
from unisono.optim.norms import Segments
from unisono.optim.options import OptimizerOptions
from unisono.rng import generator


def test_clipping_in_closed_form():
    assert clip_factor(2.0, clip=4.0) == 1.0
    assert clip_factor(8.0, clip=4.0) == 4.0 / (8.0 + 1e-6)
    assert clip_factor(0.0, clip=4.0) == 1.0
    assert math.isnan(clip_factor(math.nan, clip=4.0))
    assert clip_factor(math.inf, clip=4.0) == 0.0


@pytest.mark.parametrize(("name", "clip", "rows"), [("adam", None, 0), ("adam", 1.0, 1), ("lars", None, 2)])
def test_only_what_is_needed_is_shared(name, clip, rows):
    segments = Segments([(0, 4)], 4)
    scaling = Scaling(OptimizerOptions(name, lr=0.1, clip=clip), segments, [True])
    assert scaling.rows == rows
    shared = np.ones((rows, segments.count))
    scaling.publish(np.zeros(4, np.float32), np.zeros(4, np.float32), 0, shared)
    assert (shared == 0).all()
    if not rows:
        assert scaling.scale(shared, 0, 4) is UNSCALED


def test_gradients_are_clipped_to_the_norm():
    params, grads = np.zeros(4, np.float32), np.array([3, 0, 0, 4], np.float32)
    segments = Segments([(0, 2), (2, 2)], 4)
    scaling = Scaling(OptimizerOptions("sgd", lr=1.0, clip=0.5), segments, [True, True])
    shared = np.zeros((1, segments.count))
    scaling.publish(params, grads, 0, shared)
    make(OptimizerOptions("sgd", lr=1.0)).update(params, grads, [], 1.0, 1, scaling.scale(shared, 0, 4))
    assert params == pytest.approx([-0.3, 0, 0, -0.4], abs=1e-6)


def test_weights_or_gradients_of_norm_zero_are_not_adapted():
    segments = Segments([(0, 1), (1, 1), (2, 1), (3, 1)], 4)
    options = OptimizerOptions("lars", lr=1.0, trust=0.1)
    scaling = Scaling(options, segments, [True, True, True, False])
    shared = np.zeros((2, segments.count))
    scaling.publish(np.float32([0, 2, 2, 2]), np.float32([1, 0, 4, 4]), 0, shared)
    rates = scaling.scale(shared, 0, 4).rates
    assert rates == [(0, 1, 1.0), (1, 2, 1.0), (2, 3, pytest.approx(0.1 * 2 / 4)), (3, 4, 1.0)]


@pytest.mark.parametrize("clip", [None, 1.0])
def test_lars_follows_the_paper(clip):
    """Against the formulas in float64, parameter by parameter."""
    shapes = [(30, 50), (50,), (50, 7), (7,)]
    counts = [math.prod(shape) for shape in shapes]
    offsets = np.cumsum([0, *counts[:-1]]).tolist()
    length, decay, momentum, trust = sum(counts), 0.01, 0.8, 0.02
    options = OptimizerOptions("lars", 1.0, momentum, weight_decay=decay, clip=clip, trust=trust)
    segments = Segments(list(zip(offsets, counts, strict=True)), length)
    scaling = Scaling(options, segments, [len(shape) > 1 for shape in shapes])
    shared = np.zeros((scaling.rows, segments.count))
    params = generator(0, "init").standard_normal(length).astype(np.float32)
    state = [np.zeros(length, np.float32)]
    optimizer = make(options)
    weights = [params[at : at + count].astype(np.float64) for at, count in zip(offsets, counts, strict=True)]
    speeds = [np.zeros(count) for count in counts]
    for step in range(1, 21):
        lr = 0.1 / step
        flat = generator(0, "synthetic", step).standard_normal(length).astype(np.float32)
        scaling.publish(params, flat, 0, shared)
        optimizer.update(params, flat, state, lr, step, scaling.scale(shared, 0, length))
        clipped = flat * (min(1.0, clip / (np.linalg.norm(flat.astype(np.float64)) + 1e-6)) if clip else 1.0)
        for w, v, at, shape in zip(weights, speeds, offsets, shapes, strict=True):
            g = clipped[at : at + len(w)]
            norm = np.linalg.norm(w)
            factor = trust * norm / (np.linalg.norm(g) + decay * norm) if len(shape) > 1 else 1.0
            np.add(momentum * v, lr * factor * (g + decay * w), out=v)
            np.subtract(w, v, out=w)
    assert np.abs(params - np.concatenate(weights)).max() < 2e-6


def test_lars_leaves_padding_alone():
    params, state = np.ones(6, np.float32), [np.ones(6, np.float32)]
    segments = Segments([(0, 2), (4, 1)], 6)
    options = OptimizerOptions("lars", lr=1.0)
    scaling = Scaling(options, segments, [False, False])
    shared = np.zeros((2, segments.count))
    scaling.publish(params, np.ones(6, np.float32), 0, shared)
    make(options).update(params, np.ones(6, np.float32), state, 1.0, 1, scaling.scale(shared, 0, 6))
    assert (params != 1).tolist() == [True, True, False, False, True, False]
