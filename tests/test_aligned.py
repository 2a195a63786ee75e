"""Arrays on 64-byte borders, for shapes that are not tidy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono import aligned

TYPES = [np.float32, np.float64, np.int64, np.uint8, np.bool_]
SHAPES = st.lists(st.sampled_from([0, 1, 2, 3, 7, 13, 16, 24]), min_size=1, max_size=3).map(tuple)


@given(shape=SHAPES, dtype=st.sampled_from(TYPES))
def test_arrays_begin_on_a_border(shape, dtype):
    for make in (aligned.empty, aligned.zeros):
        array = make(shape, dtype)
        assert (array.shape, array.dtype) == (shape, dtype)
        assert array.flags.c_contiguous
        assert not array.size or array.ctypes.data % 64 == 0
    assert not array.any()


@given(count=st.integers(1, 9), shape=SHAPES, dtype=st.sampled_from(TYPES))
def test_every_item_of_a_stack_begins_on_a_border_and_none_overlaps(count, shape, dtype):
    stack = aligned.stack(count, shape, dtype)
    assert stack.shape == (count, *shape)
    for item in stack:
        assert item.flags.c_contiguous
        assert not item.size or item.ctypes.data % 64 == 0
    for item in stack:
        stack[...] = 0
        item[...] = 1
        assert stack.sum(dtype=np.int64) == item.size
    assert aligned.is_stack(stack)


@given(count=st.integers(1, 9), shape=SHAPES.filter(lambda shape: 0 not in shape))
def test_the_flat_memory_of_a_stack_is_that_of_its_items(count, shape):
    stack = aligned.stack(count, shape, np.int64)
    stack[...] = np.arange(stack.size).reshape(stack.shape)
    flat, stride = aligned.flat_memory(stack), stack.strides[0] // stack.itemsize
    for number, item in enumerate(stack):
        start = number * stride
        assert flat[start : start + item.size].tolist() == item.ravel().tolist()
    flat[0] = -5
    assert stack.ravel()[0] == -5


def shifted(array: np.ndarray, nbytes: int) -> np.ndarray:
    """A copy that begins so far past a border."""
    memory = aligned.empty(array.nbytes + nbytes, np.uint8)
    copy = memory[nbytes:].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@pytest.mark.parametrize("nbytes", [4, 8, 16, 60])
def test_what_is_not_a_stack_is_copied(nbytes):
    array = shifted(np.arange(3 * 5 * 16, dtype=np.float32).reshape(3, 5, 16), nbytes)
    assert not aligned.is_stack(array)
    assert not aligned.is_aligned(array)
    for copy in (aligned.as_stack(array, np.float32), aligned.as_aligned(array)):
        assert copy.tobytes() == array.tobytes()
        assert aligned.is_stack(copy)


def test_what_is_a_stack_is_not_copied():
    tidy, odd = aligned.empty((3, 5, 16)), aligned.stack(3, (5, 13))
    assert aligned.as_stack(tidy, np.float32) is tidy
    assert aligned.as_aligned(tidy) is tidy
    assert aligned.as_stack(odd, np.float32) is odd
    assert aligned.as_stack(odd, np.float64).dtype == np.float64
    gaps = aligned.empty((3, 5, 26))[:, :, ::2]
    assert aligned.is_stack(aligned.as_stack(gaps, np.float32))
    assert not aligned.is_stack(aligned.empty((3, 5, 13))), "its second item begins 4 bytes past a border"
