"""Desk: the clerk's place in the arena: sees who has posted what, writes the log, hands out batches.

The one idea: a desk is opened anew whenever the membership changes, from what lies in the boxes alone. What a dead
worker had sent counts; the batches that it had in hand are dealt anew.

    desk = Desk(boxes, terms, steps); desk.open(epoch, pushes, workers)
    while not desk.done: desk.turn()

Each worker has up to two batches in hand, the one that it computes and the next, which it loads while it waits.
"""

import math
from collections.abc import Sequence
from typing import final

import numpy as np

from unisono.arena.fence import fence
from unisono.errors import UnisonoError
from unisono.strategies.asynchronous.boxes import DEALT, DONE, HAND, ORDERED, POSTED, USED, Boxes, count_of, token
from unisono.strategies.asynchronous.clerk import DROP, HELLO, PUSH, Clerk, Entry
from unisono.strategies.asynchronous.deals import Deal
from unisono.strategies.asynchronous.terms import Terms
from unisono.strategies.base import NotFinite

AHEAD = 2
"""Batches that a worker has in hand."""


@final
class Desk:
    """`steps` (batches, 2) float64: losses and correct answers of each batch, for the epoch's sums."""

    def __init__(self, boxes: Boxes, terms: Terms, steps: np.ndarray) -> None:
        self._boxes, self._terms, self._steps = boxes, terms, steps

    def open(self, epoch: int, pushes: int, workers: Sequence[int]) -> None:
        """Goes on where the log ends; `workers`: those who live."""
        boxes, words = self._boxes, self._boxes.words
        self._epoch, self._pushes = epoch, pushes
        self._clerk = clerk = Clerk(self._terms.rules(epoch))
        self._length = boxes.ordered(epoch)
        self._heard = dict.fromkeys(range(boxes.size), 0)
        taken, greetings = set(), 0
        for number in range(self._length):
            entry = clerk.again(boxes.entry(number))
            greetings += entry.kind == HELLO
            if entry.kind in (PUSH, DROP):
                taken.add(entry.batch)
            if entry.rank >= 0:
                self._heard[entry.rank] = entry.turn
        self._posted: dict[int, int] = {}
        self._done_with = {slot: count_of(words[boxes.worker(slot) + USED], epoch) for slot in range(boxes.size)}
        self._look()
        taken |= set(self._posted.values())
        for slot in self._posted:
            self._done_with[slot] -= 1  # it is in the box, and counts when it is in the log
        for slot in range(boxes.size):
            at, used = boxes.hand(slot), count_of(words[boxes.worker(slot) + USED], epoch)
            if slot not in workers:
                words[at + DEALT] = token(epoch, used)
            for number in range(used, count_of(words[at + DEALT], epoch)):
                taken.add(words[at + HAND + number % AHEAD])
        terms, planned = self._terms, self._terms.rules(epoch).planned
        usual = range(terms.masters, boxes.size)
        if planned is not None and list(workers) == list(usual) and greetings <= len(usual):
            shares = {slot: [batch for rank, batch in planned if rank == slot] for slot in workers}
            self._deal = Deal.planned(shares, taken)
        else:
            self._deal = Deal(terms.deal, range(pushes), usual, workers, taken)
            clerk.fixed = clerk.fixed and planned is None  # a worker was lost: there is no plan for that
        for _ in range(AHEAD):
            for slot in workers:
                self._hand_out(slot)

    @property
    def done(self) -> bool:
        """Whether all pushes of the epoch are in the log."""
        return bool(count_of(self._boxes.words[DONE], self._epoch))

    @property
    def pushes(self) -> int:
        """Those in the log."""
        return self._clerk.pushes

    def turn(self) -> bool:
        """Writes down what can be; whether that was anything."""
        if self.done:
            return False
        before = self._length
        self._look()
        rank = self._clerk.choose(self._posted, self._active()) if self._posted else None
        if rank is not None:
            batch = self._posted.pop(rank)
            samples = self._keep(rank, batch)
            self._write(self._clerk.push(rank, batch, self._heard[rank], samples))
            self._done_with[rank] += 1
            self._hand_out(rank)
        if self._clerk.pushes == self._pushes:
            if (entry := self._clerk.flush()) is not None:
                self._write(entry)
            self._boxes.words[DONE] = token(self._epoch, 1)
            return True
        return self._length > before

    def _look(self) -> None:
        """Who has sent something; greetings are answered in any order."""
        boxes, epoch = self._boxes, self._epoch
        for slot, heard in self._heard.items():
            turn = count_of(boxes.words[boxes.worker(slot) + POSTED], epoch)
            if turn == heard:
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
        boxes, words = self._boxes, self._boxes.words
        held = {slot for slot, done in self._done_with.items() if count_of(words[boxes.hand(slot)], self._epoch) > done}
        return held | self._posted.keys()

    def _keep(self, slot: int, batch: int) -> int:
        """What the worker found in the batch; how many samples that has."""
        _, _, samples, loss_sum, correct = self._boxes.found[slot].tolist()
        if not math.isfinite(loss_sum):
            raise NotFinite(batch, loss_sum, self._terms.cure(self._clerk.staleness(slot)))
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
