"""Cuts: parts cover the vector, are about equally long, and keep arrays whole where that costs little."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.arena.reduction_tree import BLOCK
from unisono.errors import UserError
from unisono.strategies.asynchronous.partition import cut


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=8), st.integers(1, 6))
def test_parts_cover_the_vector_without_a_gap(sizes, masters):
    try:
        parts = cut(sizes, masters)
    except UserError:
        assert sum(sizes) <= BLOCK * masters
        return
    assert len(parts) == masters
    assert [low for low, _ in parts] == [0, *(high for _, high in parts[:-1])]
    assert parts[-1][1] == sum(sizes)
    assert all(low < high for low, high in parts)


def test_a_huge_layer_is_cut_and_parts_are_balanced():
    lengths = [high - low for low, high in cut([100352, 128, 8192, 64, 640, 10], 4)]
    assert max(lengths) < 1.1 * min(lengths)


def test_layers_stay_whole_where_that_is_balanced():
    assert cut([4096, 4100, 10], 2) == [(0, 4096), (4096, 8206)]


def test_small_arrays_are_not_cut():
    assert cut([10, 1], 2) == [(0, 10), (10, 11)]
    with pytest.raises(UserError, match=r"--masters 3: .* cut for 2 masters at most"):
        cut([10, 1], 3)


def test_one_master_has_everything():
    assert cut([3, 4], 1) == [(0, 7)]
