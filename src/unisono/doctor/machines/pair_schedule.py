"""Turns: who meets whom, and when, so that every pair of ranks meets once and no node's link is shared meanwhile.

>>> pair_turns([0, 0, 1, 1])
[[(0, 2)], [(0, 3)], [(1, 2)], [(1, 3)], [(0, 1), (2, 3)]]

The one idea: nodes play a tournament (each round every node has one other, or rests); within a round the ranks of two
nodes meet two at a time, one pair after the other. So what a pair measures is the link's, whatever else is measured in
the same turn. Pairs of one node come last, all nodes at once. Pure.
"""

from collections.abc import Sequence
from itertools import combinations, product, zip_longest
from typing import TypeAlias

Pair: TypeAlias = tuple[int, int]


def pair_turns(nodes: Sequence[int]) -> list[list[Pair]]:
    """nodes: of each rank its node, as any numbers. A list of turns, each a list of pairs (lower rank first)."""
    ranks: dict[int, list[int]] = {}
    for rank, node in enumerate(nodes):
        ranks.setdefault(node, []).append(rank)
    found = []
    for games in tournament(list(ranks)):
        found += _side_by_side([list(product(ranks[one], ranks[other])) for one, other in games])
    return found + _side_by_side([list(combinations(members, 2)) for members in ranks.values()])


def tournament(players: Sequence[int]) -> list[list[Pair]]:
    """Rounds in which everybody meets everybody once: all but the first walk around a table."""
    seats: list[int | None] = [*players, *([None] if len(players) % 2 else [])]
    rounds = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        facing = zip(seats[:half], reversed(seats[half:]), strict=True)
        rounds.append([(one, other) for one, other in facing if one is not None and other is not None])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return rounds


def _side_by_side(columns: Sequence[Sequence[Pair]]) -> list[list[Pair]]:
    """Turns of which each takes one pair of every column that has one left."""
    return [
        sorted((min(pair), max(pair)) for pair in row if pair is not None) for row in zip_longest(*columns) if any(row)
    ]
