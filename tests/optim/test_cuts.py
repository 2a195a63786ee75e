"""The promise of the folder: however the vector is cut on blocks, the bits are those of the vector updated at once."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unisono.arena.reduction_tree import BLOCK, chunk_bounds
from unisono.optim import make
from unisono.optim.base import PIECE
from unisono.optim.gradient_norms import Scaling, Segments
from unisono.optim.options import OPTIMIZERS, OptimizerOptions
from unisono.rng import generator

STEPS = range(62, 66)
"""At 64 state is flushed."""


@st.composite
def layouts(draw) -> tuple[list[tuple[int, int]], list[bool], int]:
    """Parameters of any length, some empty, with gaps; which of them are matrices; the vector's length."""
    spans, position = [], 0
    for _ in range(draw(st.integers(1, 6))):
        position += draw(st.sampled_from([0, 0, 0, 1, 700]))
        count = draw(st.one_of(st.integers(0, 40), st.integers(0, 4 * BLOCK)))
        spans.append((position, count))
        position += count
    padding = draw(st.sampled_from([0, 1, -position % BLOCK]))
    return spans, draw(st.lists(st.booleans(), min_size=len(spans), max_size=len(spans))), position + padding


@st.composite
def all_options(draw) -> OptimizerOptions:
    name = draw(st.sampled_from(list(OPTIMIZERS)))
    return OptimizerOptions(
        name,
        lr=draw(st.sampled_from([0.001, 0.3])),
        momentum=draw(st.sampled_from([None, 0.5])) if name not in ("adam", "adamw") else None,
        weight_decay=draw(st.sampled_from([None, 0.0, 0.02])),
        clip=draw(st.sampled_from([None, 0.1, 1e6])),
    )


def trained(
    options: OptimizerOptions, spans: list[tuple[int, int]], matrices: list[bool], bounds: list[tuple[int, int]]
) -> bytes:
    """Parameters and state after some steps of a world in which each of `bounds` is a rank's chunk."""
    length = bounds[-1][1]
    params = generator(0, "init").standard_normal(length).astype(np.float32)
    optimizers = [make(options) for _ in bounds]
    state = [np.zeros(length, np.float32) for _ in optimizers[0].state_names]
    segments = [Segments(spans, length) for _ in bounds]
    scalings = [Scaling(options, table, matrices) for table in segments]
    shared = np.full((scalings[0].rows, segments[0].count), np.nan)
    for step in STEPS:
        grads = generator(0, "synthetic", step).standard_normal(length).astype(np.float32)
        grads[::5] *= np.float32(1e-36)
        for scaling, (start, stop) in zip(scalings, bounds, strict=True):
            scaling.publish(params[start:stop], grads[start:stop], start, shared)
        scales = [scaling.scale(shared, *chunk) for scaling, chunk in zip(scalings, bounds, strict=True)]
        for optimizer, scale, (start, stop) in zip(optimizers, scales, bounds, strict=True):
            chunk_state = [vector[start:stop] for vector in state]
            optimizer.update(params[start:stop], grads[start:stop], chunk_state, options.lr * 62 / step, step, scale)
    assert np.isfinite(params).all()
    return b"".join(vector.tobytes() for vector in (params, *state))


@settings(max_examples=300, deadline=None)
@given(layout=layouts(), options=all_options(), data=st.data())
def test_bits_do_not_depend_on_the_cut(layout, options, data):
    spans, matrices, length = layout
    inner = st.sets(st.integers(1, max(1, (length - 1) // BLOCK)), max_size=5)
    borders = [0, *(cut * BLOCK for cut in sorted(data.draw(inner)) if cut * BLOCK < length), length]
    assert trained(options, spans, matrices, list(pairwise(borders))) == trained(
        options, spans, matrices, [(0, length)]
    )


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_nor_on_the_ranks_in_a_vector_of_several_pieces(name):
    length = 2 * PIECE + 3 * BLOCK + 77
    spans = [(0, 100), (100, PIECE + 5), (PIECE + 105, length - PIECE - 105)]
    options = OptimizerOptions(name, lr=0.01, weight_decay=0.01, clip=1.0)
    at_once = trained(options, spans, [False, True, True], [(0, length)])
    for size in (2, 3, 7):
        bounds = [chunk_bounds(length, size, rank) for rank in range(size)]
        assert trained(options, spans, [False, True, True], bounds) == at_once


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_nor_on_where_the_vector_lies_in_memory(name):
    """Vector kernels treat the first and last elements apart, by address."""
    options = OptimizerOptions(name, lr=0.1, weight_decay=0.1)

    def updated(shift: int) -> bytes:
        params, grads, *state = (
            np.zeros(5000, np.float32)[shift : shift + 4099] for _ in range(2 + len(make(options).state_names))
        )
        params[:] = generator(1, "init").standard_normal(4099)
        grads[:] = generator(2, "init").standard_normal(4099)
        for step in (1, 2, 3):
            make(options).update(params, grads, state, 0.1, step)
        return params.tobytes()

    assert len({updated(shift) for shift in range(18)}) == 1


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_gradients_are_only_read(name):
    optimizer = make(OptimizerOptions(name, lr=0.1, weight_decay=0.1))
    grads = np.ones(7, np.float32)
    grads.flags.writeable = False
    state = [np.zeros(7, np.float32) for _ in optimizer.state_names]
    params = np.zeros(7, np.float32)
    optimizer.update(params, grads, state, 0.1, 1)
    assert (params < 0).all()
