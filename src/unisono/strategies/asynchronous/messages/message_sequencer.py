"""MessageSequencer: rank 0 beside its part: puts pushes in order, tells the other masters, deals out batches.

    sequencer = MessageSequencer(comm, terms, master, steps, asked); sequencer.epoch(epoch, pushes); sequencer.log;
    sequencer.whole

The one idea: whatever ends an epoch before its time, a loss that is no number or a request to end the run, does not end
this rank alone. Workers are sent home as they come, what they bring then is not counted, and everybody learns of it
after the epoch. Which batches are done is told by their sums, as in the arena
(`strategies/asynchronous/arena/buffers.py`).

Limits: a request is obeyed at the next push; one to a master that is not the sequencer, after the epoch.
"""

import math
from collections.abc import Callable
from typing import final

import numpy as np

from unisono.arena.sync.waiting import wait_until
from unisono.comm.base import ANY, Communicator, Envelope
from unisono.errors import CommTimeout
from unisono.strategies.asynchronous.batch_assignment import BatchAssignment
from unisono.strategies.asynchronous.messages import tags
from unisono.strategies.asynchronous.messages.message_master import MessageMaster
from unisono.strategies.asynchronous.options import AsyncOptions
from unisono.strategies.asynchronous.sequencer import DROP, Entry, Sequencer, keeps_order


@final
class MessageSequencer:
    """`master`: this rank's own part. `steps` (batches, 2) float64: losses and correct answers of each batch, not a
    number before it is done. asked(): whether this rank is to end the run."""

    def __init__(
        self,
        comm: Communicator,
        terms: AsyncOptions,
        master: MessageMaster,
        steps: np.ndarray,
        asked: Callable[[], bool],
    ) -> None:
        self._comm, self._terms, self._master, self._steps, self._asked = comm, terms, master, steps, asked
        self._workers = range(terms.masters, comm.size)
        self._closing = False
        self.log: list[Entry] = []
        """Of the epoch, as far as it was done in this run."""
        self.trouble: tuple[int, float, int] | None = None
        """(batch, loss, staleness) of a loss that is no number."""

    @property
    def whole(self) -> bool:
        """Whether all batches of the epoch are done."""
        return bool(np.isfinite(self._steps[:, 0]).all())

    @property
    def halted(self) -> bool:
        """Whether the epoch ended because the run is to end."""
        return self._closing and self.trouble is None

    def epoch(self, epoch: int, pushes: int, *, resumed: bool = False) -> None:
        """Until every batch is applied, or nobody is to go on. resumed: what `steps` say is done is of this epoch."""
        self._epoch, self._pushes = epoch, pushes
        self.log, self.trouble, self._closing = [], None, False
        if not resumed:
            self._steps[...] = np.nan
        sequencer = self._begin(epoch, pushes)
        first: dict[int, list[int]] = {rank: [] for rank in self._workers}
        for _ in range(tags.AHEAD):
            for rank in self._workers:
                first[rank] += self._next(rank)
        self._first, self._held = first, {rank: len(batches) for rank, batches in first.items()}
        self._posted: dict[int, np.ndarray] = {}
        self._here = set(self._workers)
        while self._here:
            if (envelope := self._wait()) is not None:
                self._hear(envelope)
            if self._closing or self._asked():
                self._dismiss()
            while self._posted:
                chosen = sequencer.choose(self._posted, self._active())
                if chosen is None:
                    break
                self._take(chosen)
        if (entry := sequencer.flush()) is not None:
            self._tell(entry)
        self._order(Entry(tags.CLOSE, *[-1] * (len(Entry._fields) - 1)))
        self._master.settle()

    def _begin(self, epoch: int, pushes: int) -> Sequencer:
        """The rules of the epoch, and a deal of what is left of it."""
        rules, terms = self._terms.rules(epoch), self._terms
        done = set(np.flatnonzero(np.isfinite(self._steps[:, 0])).tolist())
        self._sequencer = sequencer = Sequencer(rules, len(done))
        if rules.planned is not None and keeps_order(rules.planned, done, []):
            shares = {rank: [batch for who, batch in rules.planned if who == rank] for rank in self._workers}
            self._deal = BatchAssignment.planned(shares, done)
        else:
            self._deal = BatchAssignment(terms.deal, range(pushes), self._workers, taken=done)
            sequencer.fixed = sequencer.fixed and rules.planned is None  # the run was resumed, and had left that order
        return sequencer

    def _active(self) -> set[int]:
        return {rank for rank, held in self._held.items() if held}

    def _wait(self) -> Envelope | None:
        """The next message; None: there is none, but this rank was asked to end the run."""
        found: list[Envelope] = []

        def came() -> bool:
            envelope = self._comm.probe(ANY, tags.HEAD)
            found.extend([] if envelope is None else [envelope])
            return envelope is not None or (self._asked() and not self._closing)

        if not wait_until(came, self._comm.timeout_s):
            missing = sorted(self._active() - self._posted.keys())
            raise CommTimeout(
                f"no worker has pushed for {self._comm.timeout_s:g} s; waiting for rank "
                + ", ".join(map(str, missing)),
                missing=missing,
                hint="see what those ranks are doing; a batch that takes longer needs a longer time-out",
                rank=self._comm.rank,
            )
        return found[0] if found else None

    def _hear(self, envelope: Envelope) -> None:
        head, rank = tags.head(), envelope.source
        self._comm.recv(head, rank, tags.HEAD)
        self._closing |= bool(head[-1])
        if head[0] >= 0:
            self._posted[rank] = head
        else:
            self._tell(self._sequencer.greet(rank, 0))
            self._hand_out(rank, self._first[rank])

    def _take(self, rank: int) -> None:
        """The push of a worker."""
        batch, samples, loss_sum, correct, _ = self._posted[rank].tolist()
        if not math.isfinite(loss_sum):
            self.trouble = int(batch), loss_sum, self._sequencer.staleness(rank)
            self._dismiss()
            return
        del self._posted[rank]
        self._held[rank] -= 1
        self._steps[int(batch)] = loss_sum, correct
        self._tell(self._sequencer.push(rank, int(batch), 0, int(samples)))
        more = self._next(rank)
        self._held[rank] += len(more)
        self._hand_out(rank, more)

    def _dismiss(self) -> None:
        """From now on whoever has pushed is sent home; what they pushed is taken in and forgotten."""
        self._closing = True
        for rank in [*self._posted]:
            del self._posted[rank]
            self._order(entry := Entry(DROP, rank, -1, 0, 0, 0, 0, 0))
            self._master.obey(entry, self._epoch, self._pushes)
            self._hand_out(rank, [])

    def _next(self, rank: int) -> list[int]:
        batch = self._deal.next(rank)
        return [] if batch is None else [batch]

    def _hand_out(self, rank: int, batches: list[int]) -> None:
        gone = self._closing or not self._held[rank]
        self._comm.send(tags.leave() if gone else tags.hand(*batches), rank, tags.HAND)
        if gone:
            self._here.discard(rank)

    def _tell(self, entry: Entry) -> None:
        """To the other masters, and to the one that is this rank."""
        self.log.append(entry)
        self._order(entry)
        self._master.obey(entry, self._epoch, self._pushes)

    def _order(self, entry: Entry) -> None:
        for master in range(1, self._terms.masters):
            self._comm.send(np.array(entry, np.int64), master, tags.ORDER)
