import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unisono.arena.reduction_tree import BLOCK
from unisono.optim import make
from unisono.optim.base import UNSCALED
from unisono.optim.gradient_norms import Scaling, Segments, clip_factor
from unisono.optim.options import OptimizerOptions
from unisono.rng import generator


def values(length: int, seed: int = 0) -> np.ndarray:
    """Of very different sizes, so that the order of summation shows."""
    stream = generator(seed, "synthetic")
    return (stream.standard_normal(length) * 10.0 ** stream.integers(-6, 6, length)).astype(np.float32)


def sums_of(vector: np.ndarray, spans: list[tuple[int, int]]) -> np.ndarray:
    segments = Segments(spans, len(vector))
    sums = segments.empty_sums()
    segments.square_sums(vector, 0, sums)
    return sums


def test_pieces_are_what_parameters_and_blocks_have_in_common():
    vector = np.ones(3 * BLOCK, np.float32)
    spans = [(0, 10), (10, 0), (10, BLOCK), (2 * BLOCK, 5)]
    assert sums_of(vector, spans).tolist() == [10, BLOCK - 10, 10, BLOCK - 10, 5, BLOCK - 5]


def test_norms_in_closed_form():
    vector = np.zeros(3000, np.float32)
    vector[[0, 9, 10, 2100, 2999]] = 3, 4, 12, 5, 1e6
    spans = [(0, 10), (10, 0), (10, 2500)]
    segments, sums = Segments(spans, 3000), sums_of(vector, spans)
    assert segments.parameter_norms(sums).tolist() == [5, 0, 13]
    assert segments.global_norm(sums) == pytest.approx(math.sqrt(25 + 169), rel=1e-15)


def test_norms_are_accurate():
    vector = values(70_000)
    segments, sums = Segments([(0, 70_000)], 70_000), sums_of(vector, [(0, 70_000)])
    exact = math.sqrt(math.fsum(x * x for x in vector.tolist()))
    assert segments.global_norm(sums) == pytest.approx(exact, rel=1e-14)
    assert segments.parameter_norms(sums)[0] == pytest.approx(exact, rel=1e-14)


@settings(deadline=None)
@given(
    length=st.integers(1, BLOCK), before=st.integers(0, 40), after=st.integers(0, 3 * BLOCK), seed=st.integers(0, 99)
)
def test_a_pieces_sum_depends_on_its_elements_alone(length, before, after, seed):
    """Not on its neighbours, not on its place in memory, not on how much is summed in one call."""
    piece = values(length, seed)
    before = min(before, BLOCK - length)
    alone = sums_of(piece, [(0, length)])[0]
    vector = np.concatenate([values(before, 1), piece, values(after, 2)])
    spans = [(0, before), (before, length), (before + length, after)]
    assert sums_of(vector, spans)[1 if before else 0] == alone
    unaligned = np.concatenate([np.zeros(3, np.float32), vector])[3:]
    assert sums_of(unaligned, spans)[1 if before else 0] == alone


def test_chunks_write_their_own_pieces_only():
    vector = values(40 * BLOCK + 5)
    segments = Segments([(0, 100), (100, 30_000), (30_200, 10_000)], len(vector))
    whole, sums = segments.empty_sums(), np.full(segments.count, -1.0)
    segments.square_sums(vector, 0, whole)
    segments.square_sums(vector[3 * BLOCK : 30 * BLOCK], 3 * BLOCK, sums)
    written = sums != -1
    assert (sums[written] == whole[written]).all()
    assert np.flatnonzero(written).tolist() == list(range(4, 33))
    segments.square_sums(vector[: 3 * BLOCK], 0, sums)
    segments.square_sums(vector[30 * BLOCK :], 30 * BLOCK, sums)
    assert sums.tobytes() == whole.tobytes()


def test_ranges_are_counted_from_the_chunk():
    segments = Segments([(0, 10), (10, 0), (10, 2000), (2100, 100)], 3 * BLOCK)
    assert segments.ranges(0, BLOCK) == [(0, 10, 0), (10, BLOCK, 2)]
    assert segments.ranges(BLOCK, 3 * BLOCK) == [(0, 2010 - BLOCK, 2), (2100 - BLOCK, 2200 - BLOCK, 3)]
    assert segments.ranges(BLOCK, BLOCK) == []


@pytest.mark.parametrize(("spans", "length"), [([], 0), ([], 5), ([(0, 0)], 0), ([(2, 0)], 5)])
def test_nothing_has_the_norm_zero(spans, length):
    segments, sums = Segments(spans, length), sums_of(np.ones(length, np.float32), spans)
    assert segments.global_norm(sums) == 0
    assert segments.parameter_norms(sums).tolist() == [0] * len(spans)


@pytest.mark.parametrize("spans", [[(5, 5), (0, 5)], [(0, 6), (5, 5)], [(0, 11)], [(3, -1)]])
def test_parameters_must_be_in_order(spans):
    with pytest.raises(ValueError, match="ascending order within 10 elements"):
        Segments(spans, 10)


@pytest.mark.parametrize(("start", "stop"), [(1, BLOCK), (0, 5), (0, 4 * BLOCK), (BLOCK, 0)])
def test_chunks_must_be_cut_on_blocks(start, stop):
    with pytest.raises(ValueError, match=r"is not cut on blocks of 1024"):
        Segments([(0, 7)], 3 * BLOCK).ranges(start, stop)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_what_is_not_finite_shows(bad):
    sums = sums_of(np.array([1, bad], np.float32), [(0, 2)])
    assert not math.isfinite(Segments([(0, 2)], 2).global_norm(sums))


def published(
    options: OptimizerOptions, spans: list[tuple[int, int]], matrices: list[bool], params: np.ndarray, grads: np.ndarray
) -> tuple[Scaling, np.ndarray]:
    """What is shared of a vector that one rank has whole."""
    segments = Segments(spans, len(params))
    scaling = Scaling(options, segments, matrices)
    shared = np.full((scaling.rows, segments.count), np.nan)
    scaling.publish(params, grads, 0, shared)
    return scaling, shared


def test_clipping_in_closed_form():
    assert clip_factor(2.0, clip=4.0) == 1.0
    assert clip_factor(8.0, clip=4.0) == 4.0 / (8.0 + 1e-6)
    assert clip_factor(0.0, clip=4.0) == 1.0
    assert math.isnan(clip_factor(math.nan, clip=4.0))
    assert clip_factor(math.inf, clip=4.0) == 0.0


@pytest.mark.parametrize(("name", "clip", "rows"), [("adam", None, 0), ("adam", 1.0, 1), ("lars", None, 2)])
def test_only_what_is_needed_is_shared(name, clip, rows):
    zeros, options = np.zeros(4, np.float32), OptimizerOptions(name, lr=0.1, clip=clip)
    scaling, shared = published(options, [(0, 4)], [True], zeros, zeros)
    assert scaling.rows == len(shared) == rows
    assert (shared == 0).all()
    if not rows:
        assert scaling.scale(shared, 0, 4) is UNSCALED


def test_gradients_are_clipped_to_the_norm():
    params, grads = np.zeros(4, np.float32), np.array([3, 0, 0, 4], np.float32)
    options = OptimizerOptions("sgd", lr=1.0, clip=0.5)
    scaling, shared = published(options, [(0, 2), (2, 2)], [True, True], params, grads)
    make(OptimizerOptions("sgd", lr=1.0)).update(params, grads, [], 1.0, 1, scaling.scale(shared, 0, 4))
    assert params == pytest.approx([-0.3, 0, 0, -0.4], abs=1e-6)


def test_weights_or_gradients_of_norm_zero_are_not_adapted():
    spans, matrices = [(0, 1), (1, 1), (2, 1), (3, 1)], [True, True, True, False]
    options = OptimizerOptions("lars", lr=1.0, trust=0.1)
    scaling, shared = published(options, spans, matrices, np.float32([0, 2, 2, 2]), np.float32([1, 0, 4, 4]))
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
    options = OptimizerOptions("lars", lr=1.0)
    scaling, shared = published(options, [(0, 2), (4, 1)], [False, False], params, np.ones(6, np.float32))
    make(options).update(params, np.ones(6, np.float32), state, 1.0, 1, scaling.scale(shared, 0, 6))
    assert (params != 1).tolist() == [True, True, False, False, True, False]
