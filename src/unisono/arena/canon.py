"""The canonical combination of arrays: one fixed binary tree, whoever computes it.

Floating-point addition is commutative but not associative, so the *shape* of the tree decides the bits. A node over
`width` arrays splits at the largest power of two below `width`: combine(5) = (01)(23) + 4. The tree depends on the
number of arrays alone, never on who holds them or on how the vector is cut into pieces.

>>> a, b, c = (np.float32([x]) for x in (1, 2, 3)); out = np.empty(1, np.float32)
>>> combine([a, b, c], out, np.add); float(out[0])
6.0

Works block by block, so that partial results stay in the cache while each input is read from memory once.
"""

from collections.abc import Sequence

import numpy as np

BLOCK = 1024
"""Elements; borders between ranks' chunks fall on multiples of it, so that vector kernels see no odd tails."""

_PIECE = 32 * BLOCK


def split_point(width: int) -> int:
    """The largest power of two below `width` (which is 2 or more)."""
    return 1 << (width - 1).bit_length() - 1


def chunk_bounds(length: int, size: int, rank: int) -> tuple[int, int]:
    """The elements [start, stop) that `rank` of `size` combines: whole blocks, as equal as possible."""
    blocks = -(-length // BLOCK)
    return min(length, blocks * rank // size * BLOCK), min(length, blocks * (rank + 1) // size * BLOCK)


def combine(parts: Sequence[np.ndarray], out: np.ndarray, ufunc: np.ufunc) -> None:
    """out = the canonical tree over `parts` (1-d, equal lengths). `out` may be `parts[0]`, and no other part."""
    if len(parts) == 2:
        ufunc(parts[0], parts[1], out=out)
        return
    if len(parts) == 1:
        if out is not parts[0]:
            out[...] = parts[0]
        return
    piece = min(_PIECE, len(out))
    scratch = [np.empty(piece, out.dtype) for _ in range(len(parts).bit_length())]
    for start in range(0, len(out), _PIECE):
        stop = min(start + _PIECE, len(out))
        _fold([part[start:stop] for part in parts], out[start:stop], ufunc, [room[: stop - start] for room in scratch])


def _fold(parts: Sequence[np.ndarray], out: np.ndarray, ufunc: np.ufunc, scratch: list[np.ndarray]) -> None:
    """The left half goes to `out` first: it alone may share memory with parts[0]."""
    if len(parts) == 2:
        ufunc(parts[0], parts[1], out=out)
        return
    middle = split_point(len(parts))
    _fold(parts[:middle], out, ufunc, scratch[1:])
    right = parts[middle]
    if len(parts) - middle > 1:
        right = scratch[0]
        _fold(parts[middle:], right, ufunc, scratch[1:])
    ufunc(out, right, out=out)
