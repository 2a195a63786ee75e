"""ShardExchange: shards tell each other numbers in the middle of a step, through a table in the arena.

The one idea: a barrier of its own, one word a rank. A rank writes the rows of its shards, then the number of the
exchange into its word, and waits until the words of all ranks that have shards are that far. Words and rows are
written by one rank each; the table is double, so nobody writes what others may still read: whoever is two exchanges
ahead of a reader would have had to meet it in between (rounds are kept apart by READY).

    exchange = ShardExchange(shared, member); exchange.open(position, live)
    rows = exchange.rows(label, [mine])                           # (live, n): those of all shards

A rank that waits looks for a freeze as it does in any meeting: `MembershipChanged` leaves through the model, the round
is redone by the members of the new view, and exchanges are counted from 1 again: their numbers begin with the view's.
Waiting counts as a sign of life, so that only a rank that does not come is taken for stuck.

Numbers are (view, round, exchange of the round). Rounds of a view count modulo 2^27. That is safe, for a word counts
only if it is of the very round that is going on: whoever is waited for cannot be in a later round, which begins after
all have met (READY), and its word of 2^27 rounds before is gone, since every rank with shards exchanges in each epoch.

Limits: 2^16 exchanges a step, more are an error; epochs of fewer than 2^27 steps.
"""

from collections.abc import Sequence
from typing import final

from unisono.arena.membership.member import Member
from unisono.arena.membership.protocol import READY, flag_of, freezing, pack
from unisono.arena.memory.fence import fence
from unisono.arena.sync.waiting import SPINS, wait_until
from unisono.comm.collective_check import late_ranks_error
from unisono.data.shards import shards_of_rank
from unisono.errors import UserError
from unisono.models.base import Array, Exchange, unequal_exchanges
from unisono.resources import usable_cores
from unisono.strategies.arena.state import EXCHANGE_LINE, ArenaState

_ROUND_BITS, _COUNT_BITS = 27, 16
_ROUNDS, _MOST = 1 << _ROUND_BITS, (1 << _COUNT_BITS) - 1


@final
class ShardExchange(Exchange):
    """One rank's side."""

    def __init__(self, shared: ArenaState, member: Member) -> None:
        self._member = member
        self._words, self._tables = shared.exchange_words, shared.exchange_tables
        self._spins = 0 if member.size > usable_cores() else SPINS
        # That of a member without end: a supervisor watches over the ranks, and ends the wait for one that is gone.
        self._timeout_s = member.timeout_s
        self.open(member.view.position, 0)

    def open(self, position: int, live: int) -> None:
        """The exchanges of a round whose batch has `live` shards."""
        member, view = self._member, self._member.view
        shares = {slot: shards_of_rank(live, member.count, index) for index, slot in enumerate(view.members)}
        self._mine, self._live, self._ready = shares[member.slot], live, pack(view.number, position, READY)
        self._others = [slot for slot, share in shares.items() if share and slot != member.slot]
        self._number = (view.number << _ROUND_BITS | (position - view.position) % _ROUNDS) << _COUNT_BITS
        self._last = self._number + _MOST

    def rows(self, label: int, values: Sequence[Array]) -> Array:
        self._member.check_membership()
        if self._number == self._last:
            raise UserError(
                f"shards exchange statistics more than {_MOST} times in a step",
                hint="use fewer layers of batch norm, or leave --sync-batchnorm (sync_batchnorm=True) out",
            )
        self._number += 1
        table = self._tables[self._number % 2]
        end = 1 + len(values[0])
        for shard, row in zip(self._mine, values, strict=True):
            table[shard, 0], table[shard, 1:end] = label, row
        if fence is not None:
            fence()
        self._words[self._member.slot * EXCHANGE_LINE] = self._number
        if not self._all_here():
            self._wait()
        if fence is not None:
            fence()
        found: Array = table[: self._live, :end]
        if (found[:, 0] != label).any():
            raise unequal_exchanges()
        self._member.pulse()
        rest: Array = found[:, 1:]
        return rest

    def _all_here(self) -> bool:
        return all(self._number <= self._words[slot * EXCHANGE_LINE] <= self._last for slot in self._others)

    def _wait(self) -> None:
        for _ in range(self._spins):
            if self._all_here():
                return
        member = self._member
        here = False

        def ready() -> bool:
            nonlocal here
            here = self._all_here()
            member.pulse()
            return here or freezing(member.words, member.view.number) or bool(self._gone())

        if not wait_until(ready, self._timeout_s):
            raise late_ranks_error(member.slot, "an exchange of batch norm", self._timeout_s, self._missing())
        if here:
            return
        member.check_membership()
        # Looked at again: it may have come, and gone on, in between.
        if not self._all_here():
            raise unequal_exchanges()

    def _missing(self) -> list[int]:
        words, number, last = self._words, self._number, self._last
        return [slot for slot in self._others if not number <= words[slot * EXCHANGE_LINE] <= last]

    def _gone(self) -> list[int]:
        """Those that will not come: they have finished their gradients of this round."""
        return [slot for slot in self._missing() if flag_of(self._member.words, slot) >= self._ready]
