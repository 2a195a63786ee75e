"""The order of a study's runs: every cell once a round, there and back again.

>>> [turn.cell for turn in run_order(["a", "b"], repeat=2)]
['a', 'b', 'b', 'a']

The one idea: a machine that grows slower while a study goes on must not decide it. Rounds go through the cells in turn
forwards and backwards (ABBA), so that whatever drifts falls on all cells alike, and cells are compared round by round.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, final

T = TypeVar("T")


@final
@dataclass(frozen=True)
class Turn(Generic[T]):
    """One run of one cell."""

    cell: T
    repeat: int
    """From 0; below 0 for a warm-up, which does not count."""


def run_order(cells: Sequence[T], repeat: int, warmup: int = 0) -> list[Turn[T]]:
    """Every run, in order."""
    found: list[Turn[T]] = []
    for number, at in enumerate(range(-warmup, repeat)):
        found += [Turn(cell, at) for cell in (cells if number % 2 == 0 else reversed(cells))]
    return found
