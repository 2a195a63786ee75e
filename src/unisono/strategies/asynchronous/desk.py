"""Desk: the clerk's place in the arena: sees who has posted what, writes the log, hands out batches.

The one idea: a desk is opened anew whenever the membership changes, from what lies in the boxes alone. What a dead
worker had sent counts; the batches that it had in hand are dealt anew.

    desk = Desk(boxes, terms, steps, requests); desk.open(epoch, workers, masters, pause)
    while not desk.closed: desk.turn()

A run that is asked to end does so in the middle of an epoch: which batches are done is told by their sums, and whoever
resumes it deals out the others.

Each worker has up to two batches in hand, the one that it computes and the next, which it loads while it waits.
"""

import math
from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from unisono.arena.fence import fence
from unisono.arena.requests import Requests
from unisono.errors import UnisonoError
from unisono.strategies.asynchronous import orders
from unisono.strategies.asynchronous.boxes import (
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
    Boxes,
    count_of,
    token,
)
from unisono.strategies.asynchronous.clerk import DROP, PUSH, Clerk, Entry
from unisono.strategies.asynchronous.deals import Deal
from unisono.strategies.asynchronous.sums import begin, done_batches
from unisono.strategies.asynchronous.terms import Terms
from unisono.strategies.base import NotFinite

AHEAD = 2
"""Batches that a worker has in hand."""


@final
class Desk:
    """`steps` (batches, 2) float64: losses and correct answers of each batch, not a number before it is done."""

    def __init__(self, boxes: Boxes, terms: Terms, steps: np.ndarray, requests: Requests) -> None:
        self._boxes, self._terms, self._steps, self._requests = boxes, terms, steps, requests

    def open(self, epoch: int, workers: Sequence[int], masters: Sequence[int], pause: Callable[[], None]) -> None:
        """Goes on where the log ends; `workers`: those who live; `masters`: who serve parts, this rank among them;
        pause() is called while a worker is just sending something."""
        self._masters = masters
        boxes, words = self._boxes, self._boxes.words
        self._epoch, self._pushes = epoch, len(self._steps)
        log = [boxes.entry(number) for number in range(boxes.ordered(epoch))]
        begin(boxes, self._steps, epoch)
        done = done_batches(boxes, self._steps, epoch)
        pushed = [(entry.rank, entry.batch) for entry in log if entry.kind in (PUSH, DROP)]
        self.before = len(done) - len(pushed)
        """Pushes of the epoch that the run which is resumed had done."""
        self._clerk = clerk = Clerk(self._terms.rules(epoch), self.before)
        self._length = len(log)
        self._heard = dict.fromkeys(range(boxes.size), 0)
        for entry in log:
            clerk.again(entry)
            if entry.rank >= 0:
                self._heard[entry.rank] = entry.turn
        self._posted: dict[int, int] = {}
        self._looks = [(boxes.worker(slot) + POSTED, boxes.hand(slot) + LOOKED) for slot in range(boxes.size)]
        self._seen = [-1] * boxes.size
        used_by = dict.fromkeys(range(boxes.size), 0)
        self._done_with = {}
        for slot in range(boxes.size):
            while (standing := boxes.standing(slot, epoch)) is None and slot in workers:
                pause()
            used, turn = standing or (count_of(words[boxes.worker(slot) + USED], epoch), self._heard[slot])
            in_box = turn > self._heard[slot] and not boxes.found[slot, 0]
            used_by[slot], self._done_with[slot] = used, used - in_box  # one counts when it is in the log
        self._look()
        taken = done | set(self._posted.values())
        for slot, used in used_by.items():
            at = boxes.hand(slot)
            if slot not in workers:
                words[at + DEALT] = token(epoch, used)
            for number in range(used, count_of(words[at + DEALT], epoch)):
                taken.add(words[at + HAND + number % AHEAD])
        terms, planned = self._terms, self._terms.rules(epoch).planned
        usual = range(terms.masters, boxes.size)
        if planned is not None and (list(workers) != list(usual) or not orders.begins(planned, done, pushed)):
            words[FREED] = epoch  # for good: batches are dealt otherwise from here on
        if planned is not None and words[FREED] != epoch:
            shares = {slot: [batch for rank, batch in planned if rank == slot] for slot in workers}
            self._deal = Deal.planned(shares, taken)
        else:
            self._deal = Deal(terms.deal, range(self._pushes), usual, workers, taken)
            clerk.fixed = clerk.fixed and planned is None  # a worker was lost: there is no plan for that
        idle = {entry.rank for entry in log} & {slot for slot in workers if not self._in_hand(slot)}
        for slot in idle:  # its parameters have aged meanwhile, and nobody has waited for it
            words[boxes.hand(slot) + FRESH] = token(epoch, self._done_with[slot] + 1)
        for _ in range(AHEAD):
            for slot in workers:
                self._hand_out(slot)

    def due(self, rank: int) -> bool:
        """Whether there is anything that no clerk has looked at and that is this rank's to see to: what it has sent
        itself, for it has that in its cache, or what one has sent that sleeps. Asked without the pen."""
        if self.closed:  # nobody looks any more at what comes
            return False
        boxes, words = self._boxes, self._boxes.words
        for slot, (at, looked) in enumerate(self._looks):
            if words[at] != words[looked] and (slot == rank or words[boxes.worker(slot) + ASLEEP]):
                return True
        return self._requests.asked_to_halt

    @property
    def pending(self) -> bool:
        """Whether there are pushes that this clerk has looked at and that are not in the log."""
        return bool(self._posted)

    def sync(self) -> None:
        """Catches up with what other clerks have written."""
        length = self._boxes.ordered(self._epoch)
        for number in range(self._length, length):
            entry = self._clerk.again(self._boxes.entry(number))
            if entry.rank >= 0:
                self._heard[entry.rank] = entry.turn
            if entry.kind in (PUSH, DROP):
                self._posted.pop(entry.rank, None)
                self._done_with[entry.rank] += 1
                self._deal.next(entry.rank)  # what that clerk has handed out
        self._length = length

    @property
    def closed(self) -> bool:
        """Whether there will be no more entries."""
        return bool(count_of(self._boxes.words[DONE], self._epoch))

    @property
    def pushes(self) -> int:
        """Those in the log."""
        return self._clerk.pushes

    def turn(self) -> bool:
        """Writes down what can be; whether that was anything."""
        if self.closed:
            return False
        if self._requests.asked_to_halt:
            return self._close(HALTED)
        before = self._length
        self._look()
        active = self._active()
        rank = self._clerk.choose(self._posted, active) if self._posted else None
        if rank is not None:
            batch = self._posted.pop(rank)
            samples = self._keep(rank, batch)
            self._write(self._clerk.push(rank, batch, self._heard[rank], samples))
            self._done_with[rank] += 1
            self._hand_out(rank)
        if self._clerk.pushes == self._pushes:
            return self._close(WHOLE)
        if rank is None and active <= self._posted.keys():
            raise UnisonoError(
                f"epoch {self._epoch} has {self._pushes} batches and {self._clerk.pushes} are done, but nobody has "
                f"another in hand and no push may be next; in the boxes: {self._posted}"
            )
        return self._length > before

    def _close(self, why: int) -> bool:
        if (entry := self._clerk.flush()) is not None:
            self._write(entry)
        self._boxes.words[DONE] = token(self._epoch, why)
        for slot in range(self._boxes.size):
            self._boxes.ring(slot)
        return True

    def _look(self) -> None:
        """Who has sent something; greetings are answered in any order."""
        boxes, words, seen = self._boxes, self._boxes.words, self._seen
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
            greets, batch = boxes.found[slot, :2].tolist()
            self._heard[slot] = turn
            if greets:
                self._write(self._clerk.greet(slot, turn))
            else:
                self._posted[slot] = int(batch)

    def _active(self) -> set[int]:
        return {slot for slot in self._done_with if self._in_hand(slot)} | self._posted.keys()

    def _in_hand(self, slot: int) -> int:
        """Batches that the worker was given and that are not in the log."""
        return count_of(self._boxes.words[self._boxes.hand(slot) + DEALT], self._epoch) - self._done_with[slot]

    def _keep(self, slot: int, batch: int) -> int:
        """What the worker found in the batch; how many samples that has."""
        _, _, samples, loss_sum, correct = self._boxes.found[slot].tolist()
        if math.isfinite(self._steps[batch, 0]):
            raise UnisonoError(f"batch {batch} of epoch {self._epoch} came twice, the second time from rank {slot}")
        if not math.isfinite(loss_sum):
            raise NotFinite(batch, loss_sum, self._terms.cure(self._clerk.staleness(slot)))
        self._boxes.words[KEEPING] = token(self._epoch, batch + 1)
        self._steps[batch] = loss_sum, correct
        return int(samples)

    def _write(self, entry: Entry) -> None:
        if self._length == len(self._boxes.log):
            raise UnisonoError(f"ranks were replaced more often in one epoch than the log has room for ({entry.turn})")
        self._boxes.log[self._length] = entry
        self._length += 1
        if fence is not None:
            fence()
        self._boxes.words[ORDERED] = token(self._epoch, self._length)
        for slot in self._masters[1:]:
            self._boxes.ring(slot)

    def _hand_out(self, slot: int) -> None:
        words, at = self._boxes.words, self._boxes.hand(slot)
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
            self._boxes.ring(slot)
