"""Partition: which part of the parameters each master owns.

The one idea: a part is a stretch of the flat vector. Borders lie where parts are equally long, moved to the nearest
border between two arrays (a weight, a bias) if one is near, else to the nearest block inside a large array.

>>> cut([100352, 128, 8192, 64, 640, 10], masters=2)       # mlp:128,64: the first weight alone is 92 % and is cut
[(0, 54272), (54272, 109386)]
>>> cut([4096, 4100, 10], masters=2)
[(0, 4096), (4096, 8206)]
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

from unisono.arena.reduction_tree import BLOCK
from unisono.errors import UserError

NEAR = 8
"""A border between arrays is near if it is within this part of a master's share."""


def cut(sizes: Sequence[int], masters: int) -> list[tuple[int, int]]:
    """[low, high) for each master. `sizes`: elements of each array. A `UserError` if there are not enough pieces."""
    ends = list(accumulate(sizes, initial=0))
    length = ends[-1]
    places = sorted({*ends, *range(0, length, BLOCK)} - {0, length})
    if len(places) < masters - 1:
        raise UserError(
            f"--masters {masters}: the model's {length:,} parameters can be cut for {len(places) + 1} masters at most",
            hint=f"use --masters {len(places) + 1} or less, or a larger model",
        )
    borders = [0]
    for number in range(1, masters):
        ideal, share = length * number / masters, length / masters
        # Enough places must be left for the masters to come, and each of them needs one beyond the last.
        free = [place for place in places if place > borders[-1]][: len(places)]
        free = free[: len(free) - (masters - 1 - number)]
        inner = [place for place in free if place in set(ends) and abs(place - ideal) <= share / NEAR]
        borders.append(min(inner or free, key=lambda place: abs(place - ideal)))
    return list(pairwise([*borders, length]))
