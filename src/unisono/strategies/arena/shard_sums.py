"""ShardAssignment: how the sum of a step's gradients is divided, among those who made them and those who finish it.

The one idea: makers (the members when the gradients were computed) leave whole nodes of the canonical tree over the
shards; finishers (the members now) combine them, each for its own chunk of the vector. After a death the two are not
the same people, and the sum still is.

    assignment = ShardAssignment(gradients, labels); kept = assignment.begin(live, position, shards)
    assignment.rows(live, shards)[...] = ...; assignment.label(live, position, shards.start, len(shards))
    assignment.leave(live, makers, slot, position, kept); whole = assignment.finish(live, makers, low, high, out)

Every shard has a row, which is written by whoever the shard is dealt to, until READY. A node lies in the row of its
first shard. A row's label tells of which round it holds a sum, and over how many shards: so whoever a shard is dealt to
after a change of membership keeps what was finished of it, by whomever. A label is taken away before its row is written
in the same round, and set when the row is whole: a rank that dies in between leaves a row that counts for nothing.

Where there are several machines, makers, finishers and rows are those of one; what the others left is in the mailbox
(`machines/mailbox.py`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias, final

import numpy as np

from unisono.arena.membership.protocol import Words
from unisono.arena.memory.fence import fence
from unisono.arena.reduction_tree import Span, Tree, combine, tree_nodes, tree_over
from unisono.data.shards import shards_of_rank
from unisono.strategies.machines.machine_layout import MachineLayout
from unisono.strategies.machines.mailbox import MachineMailbox

Slots: TypeAlias = tuple[int, ...]


_WIDTH_BITS = 20


@final
@dataclass(frozen=True)
class _Cut:
    tree: Tree
    parts: list[np.ndarray]


@final
@dataclass(frozen=True)
class _Fold:
    """What is added up to a node of several shards: `parts`, into the first of them."""

    at: int
    width: int
    tree: Tree
    parts: list[np.ndarray]


def rows_needed(lives: Sequence[int], machine_layout: MachineLayout | None = None) -> int:
    """The most shards that a machine has of a batch."""
    return max(len(_part(live, machine_layout)) for live in lives)


@final
class ShardAssignment:
    """`gradients`: (rows_needed, length), shared; `labels`: a word for each row.

    Plans are worked out once for each size of a batch: usually two."""

    def __init__(self, gradients: np.ndarray, labels: Words, mailbox: MachineMailbox | None = None) -> None:
        self._gradients, self._labels, self._mailbox = gradients, labels, mailbox
        self._machine_layout = None if mailbox is None else mailbox.machine_layout
        self.forget()

    def forget(self) -> None:
        """The members changed: the plans made for the old ones are not needed any more."""
        self._cuts: dict[tuple[int, Slots, int, int], _Cut] = {}
        self._folds: dict[tuple[int, tuple[Span, ...]], list[_Fold]] = {}
        self._shares: dict[tuple[int, Slots, int], range] = {}

    def share(self, live: int, makers: Slots, slot: int) -> range:
        """The shards that the member in `slot` computes."""
        if (live, makers, slot) not in self._shares:
            part = _part(live, self._machine_layout)
            self._shares[live, makers, slot] = _share(part, len(makers), makers.index(slot))
        return self._shares[live, makers, slot]

    def rows(self, live: int, shards: range) -> np.ndarray:
        """(shards, length): where their gradients go."""
        first = self._first(live)
        return self._gradients[shards.start - first : shards.stop - first]

    def begin(self, live: int, position: int, shards: range) -> tuple[Span, ...]:
        """The whole nodes of round `position` that lie in the rows of these shards, which are this member's: finished
        before the members changed. The other rows may be written."""
        labels, first, at, kept = self._labels, self._first(live), shards.start, []
        while at < shards.stop:
            of, width = divmod(labels[at - first], 1 << _WIDTH_BITS)
            if of == position and at + width <= shards.stop:
                kept.append((at, at + width))
                at += width
            else:  # nothing, or a node with shards that are others' now
                labels[at - first] = 0
                at += 1
        return tuple(kept)

    def label(self, live: int, position: int, first: int, count: int) -> None:
        """The gradients of `count` shards from number `first` on are there, one in each row."""
        if fence is not None:
            fence()
        at = first if self._machine_layout is None else first - self._first(live)  # a call less, in every step
        label = position << _WIDTH_BITS | 1
        for row in range(at, at + count):
            self._labels[row] = label

    def leave(self, live: int, makers: Slots, slot: int, position: int, kept: tuple[Span, ...] = ()) -> None:
        """Combines the rows of this member's shards into whole nodes; kept: the nodes that are there already."""
        if (live, kept) not in self._folds:
            self._folds[live, kept] = self._plan_folds(live, makers, slot, kept)
        for fold in self._folds[live, kept]:
            self._labels[fold.at] = 0
            combine(fold.parts, fold.parts[0], np.add, fold.tree)
            if fence is not None:
                fence()
            self._labels[fold.at] = position << _WIDTH_BITS | fold.width

    def _plan_folds(self, live: int, makers: Slots, slot: int, kept: tuple[Span, ...]) -> list[_Fold]:
        mine, first, folds = self.share(live, makers, slot), self._first(live), []
        for start, stop in tree_nodes(live, mine.start, mine.stop):
            ends, spans, at = dict(kept), [], start
            while at < stop:
                spans.append((at, ends.get(at, at + 1)))
                at = spans[-1][1]
            if len(spans) > 1:
                parts = [self._gradients[low - first] for low, _ in spans]
                folds.append(_Fold(start - first, stop - start, tree_over(tuple(spans)), parts))
        return folds

    def finish(self, live: int, makers: Slots, low: int, high: int, out: np.ndarray) -> np.ndarray:
        """Elements [low, high) of the sum over all shards: in `out`, or, if one node is the whole sum, where it lies:
        to be read only, for whoever redoes the round reads it again."""
        if self._mailbox is not None and not self._mailbox.at_once(live):
            return self._mailbox.whole[low:high]
        key = live, makers, low, high
        if key not in self._cuts:
            far = [] if self._mailbox is None else self._mailbox.far(live)
            left = sorted([*self.lying(live, makers), *far], key=itemgetter(0))
            self._cuts[key] = _Cut(tree_over(tuple(span for span, _ in left)), [row[low:high] for _, row in left])
        cut = self._cuts[key]
        if len(cut.parts) == 1:
            return cut.parts[0]
        combine(cut.parts, out, np.add, cut.tree)
        return out

    def lying(self, live: int, makers: Slots) -> list[tuple[Span, np.ndarray]]:
        """What the makers left, in the order of the shards: (shards, row)."""
        return [left for gradient_step in makers for left in self._left(live, makers, gradient_step)]

    def left(self, live: int, makers: Slots, slot: int, low: int, high: int | None) -> list[np.ndarray]:
        """What one maker left, elements [low, high) of it."""
        return [row[low:high] for _, row in self._left(live, makers, slot)]

    def _left(self, live: int, makers: Slots, slot: int) -> list[tuple[Span, np.ndarray]]:
        mine, first = self.share(live, makers, slot), self._first(live)
        return [(span, self._gradients[span[0] - first]) for span in tree_nodes(live, mine.start, mine.stop)]

    def _first(self, live: int) -> int:
        """The shard whose row is the first."""
        return 0 if self._machine_layout is None else self._machine_layout.part(live).start


def unfinished(shards: range, kept: Iterable[Span]) -> list[int]:
    """Those of `shards` that no node in `kept` holds."""
    done = {shard for span in kept for shard in range(*span)}
    return [shard for shard in shards if shard not in done]


def _part(live: int, machine_layout: MachineLayout | None) -> range:
    """The shards of this machine."""
    return range(live) if machine_layout is None else machine_layout.part(live)


def _share(part: range, count: int, index: int) -> range:
    mine = shards_of_rank(len(part), count, index)
    return range(part.start + mine.start, part.start + mine.stop)
