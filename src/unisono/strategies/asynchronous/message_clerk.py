"""MessageClerk: rank 0 beside its part: puts pushes in order, tells the other masters, deals out batches.

    clerk = MessageClerk(comm, terms, master); clerk.epoch(epoch, pushes); clerk.log; clerk.sums

The one idea: a loss that is no number does not end this rank alone. Workers are sent home as they come, and everybody
learns of it after the epoch.
"""

import math
from typing import final

import numpy as np

from unisono.arena.waiting import wait_until
from unisono.comm.base import ANY, Communicator, Envelope
from unisono.errors import CommTimeout
from unisono.strategies.asynchronous import wires
from unisono.strategies.asynchronous.clerk import DROP, Clerk, Entry
from unisono.strategies.asynchronous.deals import Deal
from unisono.strategies.asynchronous.message_master import MessageMaster
from unisono.strategies.asynchronous.terms import Terms


@final
class MessageClerk:
    """`master`: this rank's own part."""

    def __init__(self, comm: Communicator, terms: Terms, master: MessageMaster) -> None:
        self._comm, self._terms, self._master = comm, terms, master
        self._workers = range(terms.masters, comm.size)
        self.log: list[Entry] = []
        """Of the epoch."""
        self.sums = np.zeros(2)
        """Losses and correct answers of the epoch."""
        self.trouble: tuple[int, float, int] | None = None
        """(batch, loss, staleness) of a loss that is no number."""

    def epoch(self, epoch: int, pushes: int) -> None:
        """Until every batch is applied."""
        terms, self._epoch, self._pushes = self._terms, epoch, pushes
        self.log, self.sums[:], self.trouble = [], 0.0, None
        rules = terms.rules(epoch)
        self._clerk = clerk = Clerk(rules)
        if rules.planned is None:
            self._deal = Deal(terms.deal, range(pushes), self._workers)
        else:
            shares = {rank: [batch for who, batch in rules.planned if who == rank] for rank in self._workers}
            self._deal = Deal.planned(shares)
        first: dict[int, list[int]] = {rank: [] for rank in self._workers}
        for _ in range(wires.AHEAD):
            for rank in self._workers:
                first[rank] += self._next(rank)
        self._first, self._held = first, {rank: len(batches) for rank, batches in first.items()}
        self._posted: dict[int, np.ndarray] = {}
        self._here = set(self._workers)
        while self._here:
            self._hear(self._wait())
            while self._posted:
                chosen = clerk.choose(self._posted, self._active())
                if chosen is None:
                    break
                self._take(chosen)
        if (entry := clerk.flush()) is not None:
            self._tell(entry)
        self._order(Entry(wires.CLOSE, *[-1] * (len(Entry._fields) - 1)))
        self._master.settle()

    def _active(self) -> set[int]:
        return {rank for rank, held in self._held.items() if held}

    def _wait(self) -> Envelope:
        found: list[Envelope] = []

        def came() -> bool:
            envelope = self._comm.probe(ANY, wires.HEAD)
            found.extend([] if envelope is None else [envelope])
            return envelope is not None

        if not wait_until(came, self._comm.timeout_s):
            missing = sorted(self._active() - self._posted.keys())
            raise CommTimeout(
                f"rank {self._comm.rank}: no worker has pushed for {self._comm.timeout_s:g} s; waiting for rank "
                + ", ".join(map(str, missing)),
                missing=missing,
                hint="see what those ranks are doing; a batch that takes longer needs a longer time-out",
            )
        return found[0]

    def _hear(self, envelope: Envelope) -> None:
        head, rank = wires.head(), envelope.source
        self._comm.recv(head, rank, wires.HEAD)
        if head[0] >= 0:
            self._posted[rank] = head
            if self.trouble is not None:
                self._dismiss()
        else:
            self._tell(self._clerk.greet(rank, 0))
            self._hand_out(rank, self._first[rank])

    def _take(self, rank: int) -> None:
        """The push of a worker."""
        batch, samples, loss_sum, correct = self._posted[rank].tolist()
        if not math.isfinite(loss_sum):
            self.trouble = int(batch), loss_sum, self._clerk.staleness(rank)
            self._dismiss()
            return
        del self._posted[rank]
        self._held[rank] -= 1
        self.sums += loss_sum, correct
        self._tell(self._clerk.push(rank, int(batch), 0, int(samples)))
        more = self._next(rank)
        self._held[rank] += len(more)
        self._hand_out(rank, more)

    def _dismiss(self) -> None:
        """Sends whoever has pushed home; what they pushed is taken in and forgotten."""
        for rank in [*self._posted]:
            del self._posted[rank]
            self._tell(Entry(DROP, rank, -1, 0, 0, 0, 0, 0))
            self._hand_out(rank, [])

    def _next(self, rank: int) -> list[int]:
        batch = self._deal.next(rank)
        return [] if batch is None else [batch]

    def _hand_out(self, rank: int, batches: list[int]) -> None:
        gone = self.trouble is not None or not self._held[rank]
        self._comm.send(wires.leave() if gone else wires.hand(*batches), rank, wires.HAND)
        if gone:
            self._here.discard(rank)

    def _tell(self, entry: Entry) -> None:
        """To the other masters, and to the one that is this rank."""
        if self.trouble is None:
            self.log.append(entry)
        self._order(entry)
        self._master.obey(entry, self._epoch, self._pushes)

    def _order(self, entry: Entry) -> None:
        for master in range(1, self._terms.masters):
            self._comm.send(np.array(entry, np.int64), master, wires.ORDER)
