"""Membership: the ranks of a communicator, where others go on if one of them dies.

The one idea: ranks count who takes part at points that all of them pass alike, never at the moment when one of them
hears of a death. `slots` are those who made the last step together, by rank; they may have died since. A collective
that needs one of the dead raises `RankLost` on all others, and only then ranks are renumbered. So what ranks share out
by `rank` and `size` is never added up with a part missing.

    membership = Membership(member, changed); comm.follow(membership)
    membership.pause()                # in every wait: stands still while the membership changes
    membership.gone()                 # [1]: rank 1 takes part, and is dead

Limits: a death is known when all living ranks have come to a wait of ours: in a step, a collective or a message.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar, final

from unisono.arena.membership.member import Member
from unisono.arena.round import Round
from unisono.comm.collective_check import RankErrors, lost_rank_error
from unisono.errors import RankLost

T = TypeVar("T")

_AGAIN = (
    "to go on without it, catch unisono.RankLost: from then on world.rank and world.size count those who are left, and "
    "what was shared out by them can be done again"
)


@final
class Membership:
    """One rank's side. changed: called when those who live are others, on this rank."""

    def __init__(self, member: Member, changed: Callable[[], None], slots: tuple[int, ...] = ()) -> None:
        """slots: those of a group of ranks that never counts anew: a loss breaks it."""
        self._member, self._changed = member, changed
        self.fixed = bool(slots)
        self.slots = slots or member.view.members
        """By rank: where each was when the world began."""
        self._round = Round(member, RankErrors(member.slot, self._rank_of), changed)

    def group(self, ranks: Sequence[int]) -> "Membership":
        """That of some `ranks`, for a communicator of their own."""
        return Membership(self._member, self._changed, tuple(self.slots[rank] for rank in ranks))

    @property
    def rank(self) -> int:
        return self.slots.index(self._member.slot)

    @property
    def version(self) -> int:
        """Grows when somebody was lost."""
        return self._member.view.number

    @property
    def living(self) -> tuple[int, ...]:
        """The slots of those who live, as far as this rank has been told."""
        return self._member.view.members

    def pause(self) -> bool:
        """Stands still if the membership changes, until it has; whether it did."""
        return self._round.changed()

    def repeat(self, work: Callable[[], T]) -> T:
        """work(), again whenever `MembershipChanged` ends it."""
        return self._round.repeat(work)

    def gone(self, needed: Sequence[int] | None = None) -> list[int]:
        """The ranks that take part and do not live; needed: of these alone, where the others go on without the rest."""
        living = self.living
        if living == self.slots:
            return []
        found = [rank for rank, slot in enumerate(self.slots) if slot not in living]
        return found if needed is None or self.fixed else [rank for rank in found if rank in needed]

    def loss(self, what: str, slots: Sequence[int]) -> RankLost:
        """The error of a rank that needs those in `slots` for `what`."""
        ranks = [self._rank_of(slot) for slot in slots]
        names = [
            f"{rank} (once {slot})" if rank != slot else str(rank) for rank, slot in zip(ranks, slots, strict=True)
        ]
        return lost_rank_error(self.rank, what, ranks, names=names, hint=_AGAIN)

    def _rank_of(self, slot: int) -> int:
        return self.slots.index(slot) if slot in self.slots else slot

    # -- messages, whose memory belongs to a pair of those who were there when it was made

    def peer_of(self, rank: int) -> int:
        """What the mailbox calls a rank."""
        return rank if self.fixed else self.slots[rank]

    def await_peer(self, peer: int) -> None:
        """In a wait for a message: `RankLost` if the peer, as the mailbox calls it, is no more."""
        self.pause()
        slot = self.slots[peer] if self.fixed else peer
        if slot not in self.living:
            raise self.loss("a message", [slot])
