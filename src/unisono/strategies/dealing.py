"""Dealing: how the sum of a step's gradients is divided, among those who made them and those who finish it.

The one idea: makers (the members when the gradients were computed) leave whole nodes of the canonical tree over the
shards; finishers (the members now) combine them, each for its own chunk of the vector. After a death the two are not
the same people, and the sum still is.

    dealing = Dealing(gradients); dealing.leave(live, makers, slot, rows)
    whole = dealing.finish(live, makers, low, high, out)

What is left lies in a pool of rows, those of the first maker first: there are never more than shards. Where there are
several machines, makers and finishers are those of one; what the others left is on the `Desk` (`nodes/desk.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias, final

import numpy as np

from unisono.arena.canon import Span, Tree, combine, nodes, tree_over
from unisono.data.shards import shards_of_rank
from unisono.strategies.nodes.desk import Desk
from unisono.strategies.nodes.seating import Seating

Slots: TypeAlias = tuple[int, ...]


@final
@dataclass(frozen=True)
class _Cut:
    tree: Tree
    parts: list[np.ndarray]


def rows_needed(lives: Sequence[int], size: int, seating: Seating | None = None) -> int:
    """The most nodes that are ever left at once, by any number of makers up to `size`."""
    return max(len(_spans(live, _part(live, seating), count)) for live in lives for count in range(1, size + 1))


@final
class Dealing:
    """`gradients`: (rows_needed, length), shared. Plans are worked out once for each size of a batch: usually two."""

    def __init__(self, gradients: np.ndarray, desk: Desk | None = None) -> None:
        self._gradients, self._desk = gradients, desk
        self._seating = None if desk is None else desk.seating
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
            part = _part(live, self._seating)
            self._shares[live, makers, slot] = _share(part, len(makers), makers.index(slot))
        return self._shares[live, makers, slot]

    def places(self, live: int, makers: Slots, slot: int) -> np.ndarray:
        """(nodes, length): where the member in `slot` leaves what it made."""
        if (live, makers, slot) not in self._places:
            part, me = _part(live, self._seating), makers.index(slot)
            first = sum(len(_nodes(live, part, len(makers), index)) for index in range(me))
            count = len(_nodes(live, part, len(makers), me))
            self._places[live, makers, slot] = self._gradients[first : first + count]
        return self._places[live, makers, slot]

    def leave(self, live: int, makers: Slots, slot: int, rows: np.ndarray) -> None:
        """Combines this member's rows (one a shard, the same array each time) into whole nodes, in its places."""
        if live not in self._own:
            mine = self.share(live, makers, slot)
            spans = _nodes(live, _part(live, self._seating), len(makers), makers.index(slot))
            self._own[live] = [
                (place, list(rows[start - mine.start : stop - mine.start]))
                for place, (start, stop) in zip(self.places(live, makers, slot), spans, strict=True)
            ]
        for place, leaves in self._own[live]:
            combine(leaves, place, np.add)

    def finish(self, live: int, makers: Slots, low: int, high: int, out: np.ndarray) -> np.ndarray:
        """Elements [low, high) of the sum over all shards: in `out`, or, if one node is the whole sum, where it lies:
        to be read only, for whoever redoes the round reads it again."""
        if self._desk is not None and not self._desk.at_once(live):
            return self._desk.whole[low:high]
        key = live, makers, low, high
        if key not in self._cuts:
            far = [] if self._desk is None else self._desk.far(live)
            left = sorted([*self.lying(live, makers), *far], key=itemgetter(0))
            self._cuts[key] = _Cut(tree_over(tuple(span for span, _ in left)), [row[low:high] for _, row in left])
        cut = self._cuts[key]
        if len(cut.parts) == 1:
            return cut.parts[0]
        combine(cut.parts, out, np.add, cut.tree)
        return out

    def lying(self, live: int, makers: Slots) -> list[tuple[Span, np.ndarray]]:
        """What the makers left, in the order of the shards: (shards, row)."""
        return list(zip(_spans(live, _part(live, self._seating), len(makers)), self._gradients, strict=False))

    def left(self, live: int, makers: Slots, slot: int, low: int, high: int) -> list[np.ndarray]:
        """What one maker left, elements [low, high) of it."""
        return [row[low:high] for row in self.places(live, makers, slot)]


def _part(live: int, seating: Seating | None) -> range:
    """The shards of this machine."""
    return range(live) if seating is None else seating.part(live)


def _share(part: range, count: int, index: int) -> range:
    mine = shards_of_rank(len(part), count, index)
    return range(part.start + mine.start, part.start + mine.stop)


def _nodes(live: int, part: range, count: int, index: int) -> tuple[Span, ...]:
    mine = _share(part, count, index)
    return nodes(live, mine.start, mine.stop)


def _spans(live: int, part: range, count: int) -> tuple[Span, ...]:
    """What `count` makers leave, in the order of the shards."""
    return tuple(span for index in range(count) for span in _nodes(live, part, count, index))
