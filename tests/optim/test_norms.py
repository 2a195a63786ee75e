import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unisono.arena.reduction_tree import BLOCK
from unisono.optim.norms import Segments
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
    segments = Segments([(0, 10), (10, 0), (10, 2500)], 3000)
    sums = segments.empty_sums()
    segments.square_sums(vector, 0, sums)
    assert segments.parameter_norms(sums).tolist() == [5, 0, 13]
    assert segments.global_norm(sums) == pytest.approx(math.sqrt(25 + 169), rel=1e-15)


def test_norms_are_accurate():
    vector = values(70_000)
    segments = Segments([(0, 70_000)], 70_000)
    sums = segments.empty_sums()
    segments.square_sums(vector, 0, sums)
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
    segments = Segments(spans, length)
    sums = segments.empty_sums()
    segments.square_sums(np.ones(length, np.float32), 0, sums)
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
