"""What each rank contributed to an update: its share of the step's gradient, parameter by parameter.

The update is G = sum of g_r over the ranks. The contribution of rank r is <g_r, G> / <G, G>: it may be negative, and
the contributions of all ranks add up to 1. Beside it stands the norm share |g_r| / |G|, which does not add up to
anything, and the mean of the gradient of the rank's own samples. A rank whose data are unlike the others' shows.

The one idea: like the update, it is computed chunk by chunk by the chunks' owners, who see all ranks' gradients anyway.
Each leaves its sums in the arena (`sums`), and after the step anybody adds them up (`shares`).
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from unisono.arena.reduction_tree import Tree, combine

Ranges: TypeAlias = Sequence[tuple[int, int, int]]
"""(low, high, parameter): which elements of a chunk belong to which parameter."""

DOT, SQUARE, TOTAL = 0, 1, 2
FIELDS = ("contribution", "norm_share", "gradient_mean")


def sums(parts: Sequence[tuple[list[np.ndarray], Tree]], gradient: np.ndarray, ranges: Ranges, out: np.ndarray) -> None:
    """out[rank, parameter] = (<g_r, G>, <g_r, g_r>, sum of g_r) over one chunk; its last row is that of G itself.

    parts[rank]: the chunks that the rank left in the arena, and how to combine them; none if it had no shard.
    """
    out[...] = 0.0
    own = np.empty_like(gradient)
    for rank, (chunks, tree) in enumerate([*parts, ([gradient], 0)]):
        if not chunks:
            continue
        combine(chunks, own, np.add, tree)
        for low, high, parameter in ranges:
            mine, whole = own[low:high].astype(np.float64), gradient[low:high].astype(np.float64)
            out[rank, parameter] = mine @ whole, mine @ mine, mine.sum()


def shares(found: np.ndarray, sizes: Sequence[int], weights: Sequence[float]) -> np.ndarray:
    """(rank, parameter, FIELDS) from the sums of all owners, (owner, rank + 1, parameter, 3).

    sizes: elements of each parameter. weights: the share of each rank in the samples of the step, which turns g_r back
    into the mean gradient of its own samples.
    """
    total = found.sum(axis=0)
    ranks, whole = total[:-1], total[-1]
    squares = np.where(whole[:, SQUARE] > 0, whole[:, SQUARE], np.inf)
    per_sample = np.array([1 / weight if weight else 0.0 for weight in weights])
    means = ranks[:, :, TOTAL] / np.array(sizes) * per_sample[:, None]
    return np.stack([ranks[:, :, DOT] / squares, np.sqrt(ranks[:, :, SQUARE] / squares), means], axis=-1)


def chain(count: int) -> Tree:
    """Left to right: any order will do for what is only looked at."""
    tree: Tree = 0
    for number in range(1, count):
        tree = tree, number
    return tree
