from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.arena.reduction_tree import BLOCK, chunk_bounds, combine, split_point, tree_nodes, tree_over


def plain(parts: list[np.ndarray]) -> np.ndarray:
    """The tree in the plainest way."""
    if len(parts) == 1:
        return parts[0]
    middle = max(2**k for k in range(10) if 2**k < len(parts))
    return plain(parts[:middle]) + plain(parts[middle:])


@pytest.mark.parametrize(("width", "at"), [(2, 1), (3, 2), (4, 2), (5, 4), (8, 4), (9, 8)])
def test_the_split_is_the_largest_power_of_two_below(width, at):
    assert split_point(width) == at


@given(count=st.integers(1, 17), length=st.sampled_from([0, 1, 1023, 1024, 70_001]), seed=st.integers(0, 99))
def test_bits_follow_the_tree_alone(count, length, seed):
    rng = np.random.default_rng(seed)
    parts = [rng.standard_normal(length).astype(np.float32) for _ in range(count)]
    expected = plain(parts).tobytes()
    copies = [part.copy() for part in parts]
    out = np.empty(length, np.float32)
    combine(parts, out, np.add)
    assert out.tobytes() == expected
    assert all((part == copy).all() for part, copy in zip(parts, copies, strict=True))
    combine(parts, parts[0], np.add)
    assert parts[0].tobytes() == expected


@given(length=st.integers(0, 20 * BLOCK), size=st.integers(1, 9))
def test_chunks_cover_everything_once_on_block_borders(length, size):
    bounds = [chunk_bounds(length, size, rank) for rank in range(size)]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == length
    for (_, stop), (start, _) in pairwise(bounds):
        assert stop == start
        assert start % BLOCK == 0 or start == length


@given(width=st.integers(1, 17), cuts=st.sets(st.integers(1, 16)), seed=st.integers(0, 9))
def test_whoever_holds_the_leaves_the_bits_are_the_same(width, cuts, seed):
    rng = np.random.default_rng(seed)
    leaves = [rng.standard_normal(3000).astype(np.float32) for _ in range(width)]
    borders = [0, *sorted(cut for cut in cuts if cut < width), width]
    spans, parts = [], []
    for low, high in pairwise(borders):
        for start, stop in tree_nodes(width, low, high):
            part = np.empty(3000, np.float32)
            combine(leaves[start:stop], part, np.add)
            spans.append((start, stop))
            parts.append(part)
    out = np.empty(3000, np.float32)
    combine(parts, out, np.add, tree_over(tuple(spans)))
    assert out.tobytes() == plain(leaves).tobytes()


@pytest.mark.parametrize("width", range(2, 34))
def test_every_cut_in_two_or_three(width):
    leaves = [np.full(3, 1.1**leaf, np.float32) for leaf in range(width)]
    expected = plain(leaves).tobytes()
    for first in range(1, width):
        for second in (first, width - 1):
            borders = sorted({0, first, second, width})
            spans = tuple(span for low, high in pairwise(borders) for span in tree_nodes(width, low, high))
            parts = [np.empty(3, np.float32) for _ in spans]
            for part, (start, stop) in zip(parts, spans, strict=True):
                combine(leaves[start:stop], part, np.add)
            out = np.empty(3, np.float32)
            combine(parts, out, np.add, tree_over(spans))
            assert out.tobytes() == expected, borders


def test_few_nodes_suffice():
    assert tree_nodes(8, 0, 8) == ((0, 8),)
    assert tree_nodes(8, 3, 6) == ((3, 4), (4, 6))
    assert tree_nodes(5, 2, 5) == ((2, 4), (4, 5))
    assert max(len(tree_nodes(64, low, high)) for low in range(64) for high in range(low + 1, 65)) <= 2 * 6
