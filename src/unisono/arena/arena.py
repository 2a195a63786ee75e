"""Arena: one node's shared memory with the state of a run in it: created, attached to, or joined.

The one idea: a plan says where everything lies and makes the state over a segment, so a process gets the same state
however it comes to the memory. What the state is (`strategies/arena/state.py`) is not known here, nor what a
communicator is: `join` asks for the two things that it needs of one (`Group`).

    arena = Arena.create(plan)                              # by the process that forks the ranks afterwards
    arena = Arena.attach(fd, plan)                          # by one that was handed the descriptor
    arena, member = Arena.join(group, plan, fill)           # by ranks that know each other already
    arena.state; member = arena.member(slot)

Limits: Linux, one node. An arena keeps its descriptor until `close`; the memory lasts as long as its state.
"""

import math
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar, final

from unisono.arena.membership import protocol
from unisono.arena.membership.member import Member
from unisono.arena.membership.protocol import View, Words
from unisono.arena.memory.segment import Sections, Segment
from unisono.resources import usable_cores


class State(Protocol):
    """What lies in the memory."""

    @property
    def words(self) -> Words: ...


S = TypeVar("S", bound=State)
S_co = TypeVar("S_co", bound=State, covariant=True)


class StatePlan(Protocol[S_co]):
    """Where the state of `size` ranks lies."""

    @property
    def sections(self) -> Sections: ...

    @property
    def size(self) -> int: ...

    def over(self, segment: Segment) -> S_co:
        """The state in a segment that is zero at the start, or that other processes use already."""


class Group(Protocol):
    """The ranks of one node, who can tell each other things; this one is `rank` of `size`."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def timeout_s(self) -> float: ...

    def share_segment(self, nbytes: int) -> Segment:
        """New memory that all of them hold."""

    def run_on_first(self, work: Callable[[], None]) -> None:
        """work() on the first rank; returns on all when it is done, and if it fails all raise."""


@final
class Arena(Generic[S]):
    """One process's hold on the memory."""

    def __init__(self, segment: Segment, plan: StatePlan[S]) -> None:
        """For the class methods."""
        self._segment, self.plan = segment, plan
        self.state = plan.over(segment)
        """Its views keep the memory."""

    @classmethod
    def create(cls, plan: StatePlan[S]) -> "Arena[S]":
        """New memory. Whoever supervises the ranks publishes the first view (`begin`)."""
        return cls(Segment.create(plan.sections.nbytes), plan)

    @classmethod
    def attach(cls, fd: int, plan: StatePlan[S]) -> "Arena[S]":
        """The memory behind a descriptor, which is taken."""
        return cls(Segment.attach(fd), plan)

    @classmethod
    def join(
        cls, group: Group, plan: StatePlan[S], fill: Callable[[S], None], position: int = 0
    ) -> "tuple[Arena[S], Member]":
        """Called by every rank of the group. The first one calls fill(state): what round `position` left."""
        arena = cls(group.share_segment(plan.sections.nbytes), plan)

        def start() -> None:
            fill(arena.state)
            begin(arena.state.words, plan.size, position)

        group.run_on_first(start)
        return arena, arena.member(group.rank, timeout_s=group.timeout_s)

    def member(self, slot: int, *, timeout_s: float = math.inf, after: int = 0) -> Member:
        """The rank in `slot`, once it is a member of a view later than number `after`."""
        size = self.plan.size
        return Member(self.state.words, slot, size, crowded=size > usable_cores(), timeout_s=timeout_s, after=after)

    @property
    def fd(self) -> int:
        """The descriptor, for a process that is to attach."""
        return self._segment.fd

    def close(self) -> None:
        """Closes the descriptor: from now on nobody can attach through it."""
        self._segment.close()


def begin(words: Words, size: int, position: int = 0) -> View:
    """Publishes the first view: all ranks are members, and everything up to round `position` is done."""
    return protocol.first_view(words, range(size), size, position)
