"""Dealing: how the sum of a step's gradients is divided, among those who made them and those who finish it.

The one idea: makers (the members when the gradients were computed) leave whole nodes of the canonical tree over the
shards; finishers (the members now) combine them, each for its own chunk of the vector. After a death the two are not
the same people, and the sum still is.

    dealing = Dealing(gradients); dealing.leave(live, makers, slot, rows)
    whole = dealing.finish(live, makers, low, high, out)

What is left lies in a pool of rows, those of the first maker first: there are never more than shards.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from unisono.arena.canon import Span, Tree, combine, nodes, tree_over
from unisono.data.shards import shards_of_rank

Slots: TypeAlias = tuple[int, ...]


@final
@dataclass(frozen=True)
class _Cut:
    tree: Tree
    parts: list[np.ndarray]


def rows_needed(lives: Sequence[int], size: int) -> int:
    """The most nodes that are ever left at once, by any number of makers up to `size`."""
    return max(len(_spans(live, count)) for live in lives for count in range(1, size + 1))


@final
class Dealing:
    """`gradients`: (rows_needed, length), shared. Plans are worked out once for each size of a batch: usually two."""

    def __init__(self, gradients: np.ndarray) -> None:
        self._gradients = gradients
        self.forget()

    def forget(self) -> None:
        """The members changed: the plans made for the old ones are not needed any more."""
        self._cuts: dict[tuple[int, Slots, int, int], _Cut] = {}
        self._own: dict[int, list[tuple[np.ndarray, list[np.ndarray]]]] = {}
        self._shares: dict[tuple[int, Slots, int], range] = {}
        self._places: dict[tuple[int, Slots, int], np.ndarray] = {}

    def share(self, live: int, makers: Slots, slot: int) -> range:
        """The shards that the member in `slot` computes."""
        if (live, makers, slot) not in self._shares:
            self._shares[live, makers, slot] = shards_of_rank(live, len(makers), makers.index(slot))
        return self._shares[live, makers, slot]

    def places(self, live: int, makers: Slots, slot: int) -> np.ndarray:
        """(nodes, length): where the member in `slot` leaves what it made."""
        if (live, makers, slot) not in self._places:
            first = sum(len(_nodes(live, len(makers), index)) for index in range(makers.index(slot)))
            count = len(_nodes(live, len(makers), makers.index(slot)))
            self._places[live, makers, slot] = self._gradients[first : first + count]
        return self._places[live, makers, slot]

    def leave(self, live: int, makers: Slots, slot: int, rows: np.ndarray) -> None:
        """Combines this member's rows (one a shard, the same array each time) into whole nodes, in its places."""
        if live not in self._own:
            mine = self.share(live, makers, slot)
            spans = _nodes(live, len(makers), makers.index(slot))
            self._own[live] = [
                (place, list(rows[start - mine.start : stop - mine.start]))
                for place, (start, stop) in zip(self.places(live, makers, slot), spans, strict=True)
            ]
        for place, leaves in self._own[live]:
            combine(leaves, place, np.add)

    def finish(self, live: int, makers: Slots, low: int, high: int, out: np.ndarray) -> np.ndarray:
        """Elements [low, high) of the sum over all shards: in `out`, or, if one node is the whole sum, where it lies:
        to be read only, for whoever redoes the round reads it again."""
        key = live, makers, low, high
        if key not in self._cuts:
            spans = _spans(live, len(makers))
            self._cuts[key] = _Cut(tree_over(spans), [row[low:high] for row in self._gradients[: len(spans)]])
        cut = self._cuts[key]
        if len(cut.parts) == 1:
            return cut.parts[0]
        combine(cut.parts, out, np.add, cut.tree)
        return out

    def left(self, live: int, makers: Slots, slot: int, low: int, high: int) -> list[np.ndarray]:
        """What one maker left, elements [low, high) of it."""
        return [row[low:high] for row in self.places(live, makers, slot)]


def _nodes(live: int, count: int, index: int) -> tuple[Span, ...]:
    mine = shards_of_rank(live, count, index)
    return nodes(live, mine.start, mine.stop)


def _spans(live: int, count: int) -> tuple[Span, ...]:
    """What `count` makers leave, in the order of the shards."""
    return tuple(span for index in range(count) for span in _nodes(live, count, index))
