"""Seating: which ranks are on which node, and so which shards, and which whole nodes of their tree, each machine has.

The one idea: ranks take seats node by node, and shards are dealt along the seats. So a machine always has a contiguous
range of shards, whatever numbers a launcher gave to its ranks, and can fold them into few sums before anything is sent.

>>> seating = Seating.of([0, 0, 0, 3], rank=3, shards=8)
>>> seating.groups, seating.node, seating.part(8), seating.spans(8, 0)
(((0, 1, 2), (3,)), 1, range(6, 8), ((0, 4), (4, 6)))

In the ragged end of an epoch shards stay where they are: machines whose shards are empty have nothing to do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

from unisono.arena.canon import Span, nodes
from unisono.data.shards import shards_of_rank


@final
@dataclass(frozen=True)
class Seating:
    """As one machine sees it: the one with number `node`."""

    groups: tuple[tuple[int, ...], ...]
    """The ranks of each machine, ascending; machines in the order of their first ranks."""
    node: int
    shards: int
    """Of a whole batch."""
    rounded: bool = False
    """Whether sums are rounded on their way."""

    @classmethod
    def of(cls, colours: Sequence[int], rank: int, shards: int, *, rounded: bool = False) -> "Seating":
        """colours: for each rank something that is equal on one machine; see `comm/node.py`."""
        groups: dict[int, list[int]] = {}
        for number, colour in enumerate(colours):
            groups.setdefault(colour, []).append(number)
        ordered = tuple(tuple(group) for group in groups.values())
        return cls(ordered, next(node for node, group in enumerate(ordered) if rank in group), shards, rounded)

    @cached_property
    def count(self) -> int:
        """Of machines."""
        return len(self.groups)

    @cached_property
    def size(self) -> int:
        """Of ranks."""
        return sum(map(len, self.groups))

    @property
    def ranks(self) -> tuple[int, ...]:
        """Those of this machine."""
        return self.groups[self.node]

    @property
    def most(self) -> int:
        """Ranks on one machine."""
        return max(map(len, self.groups))

    def slots_of(self, ranks: Sequence[int]) -> list[int]:
        """The places on this machine of those of the `ranks` that are on it."""
        return [self.ranks.index(rank) for rank in ranks if rank in self.ranks]

    def cut(self, number: int, node: int | None = None) -> range:
        """The part of `number` things, dealt along the seats, that is a machine's: this one's if None."""
        node = self.node if node is None else node
        first = sum(map(len, self.groups[:node]))
        last = first + len(self.groups[node]) - 1
        return range(shards_of_rank(number, self.size, first).start, shards_of_rank(number, self.size, last).stop)

    def part(self, live: int, node: int | None = None) -> range:
        """A machine's shards of a batch of which `live` are not empty."""
        whole = self.cut(self.shards, node)
        return range(min(whole.start, live), min(whole.stop, live))

    def spans(self, live: int, node: int) -> tuple[Span, ...]:
        """The whole nodes of the tree over `live` shards that a machine can make of its own."""
        part = self.part(live, node)
        return nodes(live, part.start, part.stop)
