"""ArenaSequencer: the sequencer's place in the arena: sees who has posted what, writes the log, hands out batches.

The one idea: an arena sequencer is opened anew whenever the membership changes, from what lies in the boxes alone.
What a dead worker had sent counts; the batches that it had in hand are dealt anew.

    arena_sequencer = ArenaSequencer(async_buffers, terms, steps, requests); arena_sequencer.open(epoch, workers,
    masters, pause) while not arena_sequencer.closed: arena_sequencer.turn()

A run that is asked to end does so in the middle of an epoch: which batches are done is told by their sums, and whoever
resumes it deals out the others.

Each worker has up to two batches in hand, the one that it computes and the next, which it loads while it waits.
"""

import math
from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from unisono.arena.membership.halt_and_snapshot_requests import Requests
from unisono.arena.memory.fence import fence
from unisono.errors import UnisonoError
from unisono.strategies.asynchronous.arena.buffers import (
    ASLEEP,
    DEALT,
    DONE,
    FREED,
    FRESH,
    HALTED,
    HAND,
    KEEPING,
    LOOKED,
    ORDERED,
    POSTED,
    USED,
    WHOLE,
    AsyncBuffers,
    begin_epoch_sums,
    count_of,
    done_batches,
    token,
)
from unisono.strategies.asynchronous.batch_assignment import BatchAssignment
from unisono.strategies.asynchronous.options import AsyncOptions
from unisono.strategies.asynchronous.sequencer import DROP, PUSH, Entry, Sequencer, keeps_order
from unisono.strategies.base import NotFinite

AHEAD = 2
"""Batches that a worker has in hand."""


@final
class ArenaSequencer:
    """`steps` (batches, 2) float64: losses and correct answers of each batch, not a number before it is done."""

    def __init__(self, async_buffers: AsyncBuffers, terms: AsyncOptions, steps: np.ndarray, requests: Requests) -> None:
        self._async_buffers, self._terms, self._steps, self._requests = async_buffers, terms, steps, requests

    def open(self, epoch: int, workers: Sequence[int], masters: Sequence[int], pause: Callable[[], None]) -> None:
        """Goes on where the log ends; `workers`: those who live; `masters`: who serve parts, this rank among them;
        pause() is called while a worker is just sending something."""
        self._masters = masters
        async_buffers, words = self._async_buffers, self._async_buffers.words
        self._epoch, self._pushes = epoch, len(self._steps)
        log = [async_buffers.entry(number) for number in range(async_buffers.ordered(epoch))]
        begin_epoch_sums(async_buffers, self._steps, epoch)
        done = done_batches(async_buffers, self._steps, epoch)
        pushed = [(entry.rank, entry.batch) for entry in log if entry.kind in (PUSH, DROP)]
        self.before = len(done) - len(pushed)
        """Pushes of the epoch that the run which is resumed had done."""
        self._sequencer = sequencer = Sequencer(self._terms.rules(epoch), self.before)
        self._length = len(log)
        self._heard = dict.fromkeys(range(async_buffers.size), 0)
        for entry in log:
            sequencer.again(entry)
            if entry.rank >= 0:
                self._heard[entry.rank] = entry.turn
        self._posted: dict[int, int] = {}
        self._looks = [
            (async_buffers.worker(slot) + POSTED, async_buffers.hand(slot) + LOOKED)
            for slot in range(async_buffers.size)
        ]
        self._seen = [-1] * async_buffers.size
        used_by = dict.fromkeys(range(async_buffers.size), 0)
        self._done_with = {}
        for slot in range(async_buffers.size):
            while (standing := async_buffers.standing(slot, epoch)) is None and slot in workers:
                pause()
            used, turn = standing or (count_of(words[async_buffers.worker(slot) + USED], epoch), self._heard[slot])
            in_box = turn > self._heard[slot] and not async_buffers.found[slot, 0]
            used_by[slot], self._done_with[slot] = used, used - in_box  # one counts when it is in the log
        self._look()
        taken = done | set(self._posted.values())
        for slot, used in used_by.items():
            at = async_buffers.hand(slot)
            if slot not in workers:
                words[at + DEALT] = token(epoch, used)
            for number in range(used, count_of(words[at + DEALT], epoch)):
                taken.add(words[at + HAND + number % AHEAD])
        terms, planned = self._terms, self._terms.rules(epoch).planned
        usual = range(terms.masters, async_buffers.size)
        if planned is not None and (list(workers) != list(usual) or not keeps_order(planned, done, pushed)):
            words[FREED] = epoch  # for good: batches are dealt otherwise from here on
        if planned is not None and words[FREED] != epoch:
            shares = {slot: [batch for rank, batch in planned if rank == slot] for slot in workers}
            self._deal = BatchAssignment.planned(shares, taken)
        else:
            self._deal = BatchAssignment(terms.deal, range(self._pushes), usual, workers, taken)
            sequencer.fixed = sequencer.fixed and planned is None  # a worker was lost: there is no plan for that
        idle = {entry.rank for entry in log} & {slot for slot in workers if not self._in_hand(slot)}
        for slot in idle:  # its parameters have aged meanwhile, and nobody has waited for it
            words[async_buffers.hand(slot) + FRESH] = token(epoch, self._done_with[slot] + 1)
        for _ in range(AHEAD):
            for slot in workers:
                self._hand_out(slot)

    def due(self, rank: int) -> bool:
        """Whether there is anything that no sequencer has looked at and that is this rank's to see to: what it has sent
        itself, for it has that in its cache, or what one has sent that sleeps. Asked without the pen."""
        if self.closed:  # nobody looks any more at what comes
            return False
        async_buffers, words = self._async_buffers, self._async_buffers.words
        for slot, (at, looked) in enumerate(self._looks):
            if words[at] != words[looked] and (slot == rank or words[async_buffers.worker(slot) + ASLEEP]):
                return True
        return self._requests.asked_to_halt

    @property
    def pending(self) -> bool:
        """Whether there are pushes that this sequencer has looked at and that are not in the log."""
        return bool(self._posted)

    def sync(self) -> None:
        """Catches up with what other sequencers have written."""
        length = self._async_buffers.ordered(self._epoch)
        for number in range(self._length, length):
            entry = self._sequencer.again(self._async_buffers.entry(number))
            if entry.rank >= 0:
                self._heard[entry.rank] = entry.turn
            if entry.kind in (PUSH, DROP):
                self._posted.pop(entry.rank, None)
                self._done_with[entry.rank] += 1
                self._deal.next(entry.rank)  # what that sequencer has handed out
        self._length = length

    @property
    def closed(self) -> bool:
        """Whether there will be no more entries."""
        return bool(count_of(self._async_buffers.words[DONE], self._epoch))

    @property
    def pushes(self) -> int:
        """Those in the log."""
        return self._sequencer.pushes

    def turn(self) -> bool:
        """Writes down what can be; whether that was anything."""
        if self.closed:
            return False
        if self._requests.asked_to_halt:
            return self._close(HALTED)
        before = self._length
        self._look()
        active = self._active()
        rank = self._sequencer.choose(self._posted, active) if self._posted else None
        if rank is not None:
            batch = self._posted.pop(rank)
            samples = self._keep(rank, batch)
            self._write(self._sequencer.push(rank, batch, self._heard[rank], samples))
            self._done_with[rank] += 1
            self._hand_out(rank)
        if self._sequencer.pushes == self._pushes:
            return self._close(WHOLE)
        if rank is None and active <= self._posted.keys():
            raise UnisonoError(
                f"epoch {self._epoch} has {self._pushes} batches and {self._sequencer.pushes} are done, but nobody has "
                f"another in hand and no push may be next; in the boxes: {self._posted}"
            )
        return self._length > before

    def _close(self, why: int) -> bool:
        if (entry := self._sequencer.flush()) is not None:
            self._write(entry)
        self._async_buffers.words[DONE] = token(self._epoch, why)
        for slot in range(self._async_buffers.size):
            self._async_buffers.ring(slot)
        return True

    def _look(self) -> None:
        """Who has sent something; greetings are answered in any order."""
        async_buffers, words, seen = self._async_buffers, self._async_buffers.words, self._seen
        for slot, (at, looked) in enumerate(self._looks):
            word = words[at]
            if word == seen[slot]:
                continue
            words[looked] = word
            seen[slot], turn = word, count_of(word, self._epoch)
            if turn == self._heard[slot]:
                continue
            if fence is not None:
                fence()
            greets, batch = async_buffers.found[slot, :2].tolist()
            self._heard[slot] = turn
            if greets:
                self._write(self._sequencer.greet(slot, turn))
            else:
                self._posted[slot] = int(batch)

    def _active(self) -> set[int]:
        return {slot for slot in self._done_with if self._in_hand(slot)} | self._posted.keys()

    def _in_hand(self, slot: int) -> int:
        """Batches that the worker was given and that are not in the log."""
        return (
            count_of(self._async_buffers.words[self._async_buffers.hand(slot) + DEALT], self._epoch)
            - self._done_with[slot]
        )

    def _keep(self, slot: int, batch: int) -> int:
        """What the worker found in the batch; how many samples that has."""
        _, _, samples, loss_sum, correct = self._async_buffers.found[slot].tolist()
        if math.isfinite(self._steps[batch, 0]):
            raise UnisonoError(f"batch {batch} of epoch {self._epoch} came twice, the second time from rank {slot}")
        if not math.isfinite(loss_sum):
            raise NotFinite(batch, loss_sum, self._terms.cure(self._sequencer.staleness(slot)))
        self._async_buffers.words[KEEPING] = token(self._epoch, batch + 1)
        self._steps[batch] = loss_sum, correct
        return int(samples)

    def _write(self, entry: Entry) -> None:
        if self._length == len(self._async_buffers.log):
            raise UnisonoError(f"ranks were replaced more often in one epoch than the log has room for ({entry.turn})")
        self._async_buffers.log[self._length] = entry
        self._length += 1
        if fence is not None:
            fence()
        self._async_buffers.words[ORDERED] = token(self._epoch, self._length)
        for slot in self._masters[1:]:
            self._async_buffers.ring(slot)

    def _hand_out(self, slot: int) -> None:
        words, at = self._async_buffers.words, self._async_buffers.hand(slot)
        dealt = count_of(words[at + DEALT], self._epoch)
        if dealt >= self._done_with[slot] + AHEAD:
            return
        batch = self._deal.next(slot)
        if batch is None:
            return
        words[at + HAND + dealt % AHEAD] = batch
        if fence is not None:
            fence()
        words[at + DEALT] = token(self._epoch, dealt + 1)
        if not dealt:
            self._async_buffers.ring(slot)
