"""MachineLayout: which ranks run on which machine, and which shards and sums each machine therefore has.

The one idea: ranks are ordered machine by machine, and shards are assigned in that order. So a machine always has a
contiguous range of shards, whatever numbers a launcher gave its ranks, and can reduce them to few sums before it sends.

>>> machine_layout = MachineLayout.of([0, 0, 0, 3], rank=3, shards=8)
>>> machine_layout.groups, machine_layout.node, machine_layout.part(8), machine_layout.spans(8, 0)
(((0, 1, 2), (3,)), 1, range(6, 8), ((0, 4), (4, 6)))

Sums are combined in one of two ways, whichever sends fewer bytes (`at_once`). *At once*: every machine sends its sums
to all others, which add them up. *In parts*: each machine finishes one part of the vector, then all exchange finished
parts: at most 2 (n - 1) / n times the vector if a machine has one sum. Both follow the same tree, so bits are the same.

>>> at_once([1, 1]), at_once([2, 1]), at_once([1, 1, 1, 1]), at_once([1, 0])
(True, False, False, True)

`MachineName` is how messages name a machine.

>>> str(MachineName(0, "n1", "10.0.0.1", (0, 1)))
'node 0 (n1, 10.0.0.1, ranks 0, 1)'

Limits: shards do not move in the smaller last batch of an epoch, so machines with empty shards are idle. Machines that
share an address cannot be distinguished.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

from unisono.arena.reduction_tree import Span, tree_nodes
from unisono.data.shards import shards_of_rank


@final
@dataclass(frozen=True)
class MachineLayout:
    """As one machine sees it: the one with number `node`."""

    groups: tuple[tuple[int, ...], ...]
    """The ranks of each machine, ascending; machines in the order of their first ranks."""
    node: int
    shards: int
    """Of a whole batch."""
    rounded: bool = False
    """Whether sums are rounded on their way."""

    @classmethod
    def of(cls, colours: Sequence[int], rank: int, shards: int, *, rounded: bool = False) -> "MachineLayout":
        """colours: for each rank something that is equal on one machine; see `comm/topology/shared_machine.py`."""
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
        return tree_nodes(live, part.start, part.stop)


def at_once(sums: Sequence[int]) -> bool:
    """Whether to send everything to everybody. `sums`: how many each machine has."""
    others = len(sums) - 1
    return max(sums) * others <= (max(sums) + 1) * others / len(sums)


@final
@dataclass(frozen=True)
class MachineName:
    """A machine; without ranks, if they are beside the point."""

    node: int
    host: str
    address: str
    ranks: Sequence[int] = ()

    def __str__(self) -> str:
        ranks = self.ranks
        who = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}" if ranks else ""
        return f"node {self.node} ({', '.join(filter(None, (self.host, self.address, who)))})"
