"""Arrays that begin on a 64-byte border: the one allocator for everything that a kernel reads or writes.

The one idea: matrix kernels (MKL's small fp32 products among them) round differently at different addresses. A shard's
bits must not depend on who computes it, or beside which other shards. So every vector begins on a border, and so does
every shard of a stack, in every process.

>>> x = stack(3, (24, 13))
>>> x.shape, [is_aligned(shard) for shard in x], x.strides[0] % ALIGNMENT_BYTES
((3, 24, 13), [True, True, True], 0)

Tensors inside a flat vector (`models/base.py` Layout) follow each other without gaps. Their vector begins on a border,
so each has the same address modulo 64 in every process.

Limits: stacks of odd shapes have gaps between their items, so they are not contiguous as a whole; each item is.
"""

from math import prod
from typing import TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import DTypeLike

ALIGNMENT_BYTES = 64
"""A cache line, and the widest vector register."""

Array: TypeAlias = np.ndarray


def empty(shape: int | tuple[int, ...], dtype: DTypeLike = np.float32) -> Array:
    """As np.empty."""
    kind, extent = np.dtype(dtype), (shape,) if isinstance(shape, int) else shape
    nbytes = prod(extent) * kind.itemsize
    return _placed(np.empty(nbytes + ALIGNMENT_BYTES, np.uint8), nbytes).view(kind).reshape(extent)


def zeros(shape: int | tuple[int, ...], dtype: DTypeLike = np.float32) -> Array:
    """As np.zeros: large ones take no memory before they are written."""
    kind, extent = np.dtype(dtype), (shape,) if isinstance(shape, int) else shape
    nbytes = prod(extent) * kind.itemsize
    return _placed(np.zeros(nbytes + ALIGNMENT_BYTES, np.uint8), nbytes).view(kind).reshape(extent)


def stack(count: int, shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> Array:
    """(count, *shape), not initialised: each of the `count` items is contiguous and begins on a border."""
    kind, size = np.dtype(dtype), prod(shape)
    stride = _round_up(size * kind.itemsize) // kind.itemsize
    return empty((count, stride), kind)[:, :size].reshape(count, *shape)


def flat_memory(stacked: Array) -> Array:
    """The memory of a stack as one row, gaps included: item j begins at j * (stacked.strides[0] // itemsize)."""
    count, size = len(stacked), prod(stacked.shape[1:])
    length = (count - 1) * (stacked.strides[0] // stacked.itemsize) + size if count else 0
    return as_strided(stacked, (length,), (stacked.itemsize,))


def is_aligned(array: Array) -> bool:
    """Whether it begins on a border; nothing is said of an array without elements."""
    return not array.size or array.ctypes.data % ALIGNMENT_BYTES == 0


def is_stack(array: Array) -> bool:
    """Whether each item along the first axis is contiguous and begins on a border."""
    if not array.size:
        return True
    apart = len(array) == 1 or array.strides[0] % ALIGNMENT_BYTES == 0
    return apart and is_aligned(array) and array[0].flags.c_contiguous


def as_stack(array: Array, dtype: DTypeLike) -> Array:
    """`array` itself if it is a stack of this type; otherwise a copy that is."""
    if array.dtype == dtype and is_stack(array):
        return array
    copy = stack(len(array), array.shape[1:], dtype)
    copy[...] = array
    return copy


def as_aligned(array: Array) -> Array:
    """`array` itself if it is contiguous and begins on a border; otherwise a copy that does."""
    if array.flags.c_contiguous and is_aligned(array):
        return array
    copy = empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def _placed(memory: Array, nbytes: int) -> Array:
    """The part of `memory` that begins on a border."""
    skipped = -memory.ctypes.data % ALIGNMENT_BYTES
    return memory[skipped : skipped + nbytes]


def _round_up(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
