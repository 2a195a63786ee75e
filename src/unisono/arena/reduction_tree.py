"""The canonical combination of arrays: one fixed binary tree, whoever computes which part of it.

Floating-point addition is commutative but not associative, so the *shape* of the tree decides the bits. A node over
`width` leaves splits at the largest power of two below `width`: five leaves are ((01)(23))4. The tree depends on the
number of leaves alone, never on who holds them or on how the vectors are cut into pieces.

>>> a, b, c = (np.float32([x]) for x in (1, 2, 3)); out = np.empty(1, np.float32)
>>> combine([a, b, c], out, np.add); float(out[0])
6.0

Whoever holds the leaves [low, high) may combine them into whole nodes of the tree first (`tree_nodes`) and give only
those away; `tree_over` tells how to finish. Works block by block, so that partial results stay in the cache while
each input is read from memory once.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

BLOCK = 1024
"""Elements; borders between ranks' chunks fall on multiples of it, so that vector kernels see no odd tails."""

_PIECE = 32 * BLOCK

Span: TypeAlias = tuple[int, int]
"""Leaves [low, high)."""

Tree: TypeAlias = "int | tuple[Tree, Tree]"
"""The number of a part, or two trees to combine."""


def split_point(width: int) -> int:
    """The largest power of two below `width` (which is 2 or more)."""
    return 1 << (width - 1).bit_length() - 1


def chunk_bounds(length: int, size: int, rank: int) -> Span:
    """The elements [start, stop) that `rank` of `size` combines: whole blocks, as equal as possible."""
    blocks = -(-length // BLOCK)
    return min(length, blocks * rank // size * BLOCK), min(length, blocks * (rank + 1) // size * BLOCK)


@lru_cache
def tree_nodes(width: int, low: int, high: int) -> tuple[Span, ...]:
    """The fewest whole nodes of the tree over `width` leaves that make up the leaves [low, high), left to right."""
    return tuple(_nodes(0, width, low, high))


def _nodes(start: int, stop: int, low: int, high: int) -> list[Span]:
    if high <= start or stop <= low:
        return []
    if low <= start and stop <= high:
        return [(start, stop)]
    middle = start + split_point(stop - start)
    return _nodes(start, middle, low, high) + _nodes(middle, stop, low, high)


@lru_cache
def tree_over(spans: tuple[Span, ...]) -> Tree:
    """How to combine parts that hold whole nodes, given left to right: the rest of the tree above them."""
    return _tree(spans[0][0], spans[-1][1], {span: number for number, span in enumerate(spans)})


@lru_cache
def _tree_of_leaves(width: int) -> Tree:
    return tree_over(tuple((leaf, leaf + 1) for leaf in range(width)))


def _tree(start: int, stop: int, numbers: dict[Span, int]) -> Tree:
    if (start, stop) in numbers:
        return numbers[start, stop]
    middle = start + split_point(stop - start)
    return _tree(start, middle, numbers), _tree(middle, stop, numbers)


@lru_cache
def _rooms(tree: Tree) -> int:
    """How many partial results must be held at once, beside the one in `out`."""
    if isinstance(tree, int):
        return 0
    left, right = tree
    return max(_rooms(left), 0 if isinstance(right, int) else 1 + _rooms(right))


def combine(
    parts: Sequence[Any],
    out: Any,
    ufunc: Callable[..., Any],
    tree: "Tree | None" = None,
    empty: Callable[[int, Any], Any] = np.empty,
) -> None:
    """out = the tree over `parts` (1-d, equal lengths); the canonical one. `out` may be `parts[0]`, and no other.

    Arrays of NumPy with a ufunc, or of another library whose functions take `out`, too; `empty` makes one of that.
    """
    if tree is None:
        tree = _tree_of_leaves(len(parts))
    if isinstance(tree, int):
        if out is not parts[tree]:
            out[...] = parts[tree]
    elif tree == (0, 1):
        ufunc(parts[0], parts[1], out=out)
    else:
        piece = min(_PIECE, len(out))
        scratch = [empty(piece, out.dtype) for _ in range(_rooms(tree))]
        if len(out) <= _PIECE:
            _fold(tree, parts, out, ufunc, scratch)
            return
        for start in range(0, len(out), _PIECE):
            stop = min(start + _PIECE, len(out))
            rooms = [room[: stop - start] for room in scratch]
            _fold(tree, [part[start:stop] for part in parts], out[start:stop], ufunc, rooms)


def _fold(
    tree: tuple[Tree, Tree], parts: Sequence[Any], out: Any, ufunc: Callable[..., Any], scratch: list[Any]
) -> None:
    """parts[0], which may be `out`, is read by the very first operation that writes to `out`, and never again."""
    left, right = tree
    first = parts[left] if isinstance(left, int) else out
    if not isinstance(left, int):
        _fold(left, parts, out, ufunc, scratch)
    second = parts[right] if isinstance(right, int) else scratch[0]
    if not isinstance(right, int):
        _fold(right, parts, second, ufunc, scratch[1:])
    ufunc(first, second, out=out)
