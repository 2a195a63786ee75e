"""Orders: whose push is next: whoever comes (`free`), each in turn (`round-robin`), or as a file says.

The one idea: an order looks at who has pushed and who is still at work, and names one of those who pushed, or nobody:
then the masters wait. Fixed orders make staleness a matter of the recipe instead of how many cores are free, and a run
reproducible bit by bit.

>>> next_in_turn([1, 2, 3], last=2), next_in_turn([1, 2, 3], last=3), next_in_turn([], last=1)
(3, 1, None)

A run leaves its order in `pushes.csv` (`recordings.py` reads it). Limits: after the death of a worker the rest of the
epoch keeps no recorded order any more, and a round goes on among those who are left.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

ORDERS = ("free", "round-robin")
Planned: TypeAlias = Mapping[int, Sequence[tuple[int, int]]]
"""Epoch -> (rank, batch) of each push."""


def next_in_turn(ranks: Collection[int], last: int) -> int | None:
    """The first of `ranks` after `last`, going round."""
    return min(ranks, key=lambda rank: (rank <= last, rank), default=None)


def begins(planned: Sequence[tuple[int, int]], done: Collection[int], pushed: Sequence[tuple[int, int]]) -> bool:
    """Whether an epoch has kept to its order: `done` are its batches up to here, of which this run has `pushed` the
    last (rank, batch).

    >>> order = [(1, 0), (2, 2), (1, 1)]
    >>> begins(order, {0, 2}, [(2, 2)]), begins(order, {0, 2}, [(1, 2)]), begins(order, {0, 1}, [])
    (True, False, False)
    """
    first = planned[: len(done)]
    return {batch for _, batch in first} == set(done) and list(first[len(done) - len(pushed) :]) == list(pushed)


def is_file(order: str) -> bool:
    """Whether --order names a file."""
    return order not in ORDERS
