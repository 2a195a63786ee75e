"""Fewer points, and none of the extremes is lost."""

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.report.html import downsampling
from unisono.report.html.downsampling import stretches, thin, thinned


def test_the_examples_hold():
    assert doctest.testmod(downsampling).failed == 0


@given(st.lists(st.floats(allow_nan=True, width=32), max_size=300), st.integers(4, 50))
def test_extremes_and_ends_are_kept_in_order(values, most):
    y = np.array(values, np.float64)
    kept = thin(y, most)
    assert len(kept) <= max(most, 4)
    assert (np.diff(kept) > 0).all()
    if len(y):
        assert kept[0] == 0
        assert kept[-1] == len(y) - 1
    finite = y[np.isfinite(y)]
    if len(finite) and np.isfinite(y).all():
        assert (y[kept].min(), y[kept].max()) == (finite.min(), finite.max())


@pytest.mark.parametrize("length", [0, 1, 99, 100, 101, 9_999])
def test_stretches_cover_everything_once(length):
    pieces = stretches(length)
    assert len(pieces) <= downsampling.CELLS
    assert [at for piece in pieces for at in range(piece.start, piece.stop)] == list(range(length))


def test_what_was_left_out_is_said():
    assert thinned(10, 10) == ""
    assert thinned(600, 10_000).startswith("10,000 points as 600")
