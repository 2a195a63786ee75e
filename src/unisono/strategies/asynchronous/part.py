"""Part: a master's stretch of the parameters: applies the log's entries to it, one after the other, and answers.

The one idea: old values are copied aside before anything changes, so an update that its maker did not live to finish is
taken back by whoever serves the part next, and done again.

    part = Part(boxes, shared.vectors, number=0, terms, options); part.open(epoch, pushes)
    while part.behind: part.turn()

What an entry does depends on the log and the boxes alone, so every master does the same.
"""

import time
from collections.abc import Sequence
from typing import final

import numpy as np

from unisono.arena.fence import fence
from unisono.optim.options import OptimizerOptions
from unisono.strategies.asynchronous.applying import Applying, number_of
from unisono.strategies.asynchronous.boxes import APPLIED, BEGUN, Boxes, count_of, token
from unisono.strategies.asynchronous.clerk import PUSH, Entry
from unisono.strategies.asynchronous.terms import Terms


@final
class Part:
    """`vectors`: parameters and the optimizer's state. `buffers`: the model's, which go with part 0."""

    def __init__(
        self,
        boxes: Boxes,
        vectors: Sequence[np.ndarray],
        buffers: np.ndarray,
        number: int,
        terms: Terms,
        options: OptimizerOptions,
    ) -> None:
        low, high = terms.parts[number]
        self._boxes, self._number = boxes, number
        self._changing = [vector[low:high] for vector in (*vectors, *boxes.collected)]
        self._twins = [twin[low:high] for twin in boxes.twins]
        self._params, state = self._changing[0], self._changing[1 : len(vectors)]
        collected = self._changing[-1] if boxes.collected else None
        self._applying = Applying(terms, options, self._params, state, collected)
        self._gradients = [row[low:high] for row in boxes.gradients]
        self._copies = [row[low:high] for row in boxes.copies]
        self._buffers = buffers if number == 0 else buffers[:0]
        self._at = boxes.part(number)
        self.busy_s = 0.0
        """Spent on updating and answering."""

    def open(self, epoch: int, pushes: int) -> None:
        """Goes on where whoever served the part before has stopped."""
        boxes, words = self._boxes, self._boxes.words
        self._epoch, self._pushes = epoch, pushes
        self._applied = count_of(words[self._at + APPLIED], epoch)
        if words[self._at + BEGUN] == token(epoch, self._applied + 1):
            for vector, twin in zip(self._changing, self._twins, strict=True):
                vector[...] = twin
        self._applying.weight = 0
        for number in range(self._applied - 1, -1, -1):
            entry = boxes.entry(number)
            if entry.updates:
                break
            self._applying.weight += entry.samples if entry.kind == PUSH else 0
        if self._applied:
            entry = boxes.entry(self._applied - 1)
            if words[boxes.answer(entry.rank, self._number)] < token(epoch, entry.turn):
                self._answer(entry)

    @property
    def behind(self) -> bool:
        """Whether the log has entries that are not applied."""
        return self._applied < self._boxes.ordered(self._epoch)

    def turn(self) -> bool:
        """Applies an entry, if there is one."""
        if not self.behind:
            return False
        begun = time.perf_counter()
        if fence is not None:
            fence()
        entry = self._boxes.entry(self._applied)
        self._apply(entry)
        self._applied += 1
        if fence is not None:
            fence()
        self._boxes.words[self._at + APPLIED] = token(self._epoch, self._applied)
        self._answer(entry)
        self.busy_s += time.perf_counter() - begun
        return True

    def _apply(self, entry: Entry) -> None:
        if not self._applying.changes(entry):
            return
        for vector, twin in zip(self._changing, self._twins, strict=True):
            twin[...] = vector
        if fence is not None:
            fence()
        self._boxes.words[self._at + BEGUN] = token(self._epoch, self._applied + 1)
        number = number_of(entry, self._epoch, self._pushes)
        self._applying.apply(entry, self._gradients[entry.rank], self._copies[entry.rank], number)

    def _answer(self, entry: Entry) -> None:
        """The parameters as they are now, for who sent the entry."""
        if entry.rank < 0:
            return
        boxes, slot = self._boxes, entry.rank
        if self._buffers.size:
            if entry.kind == PUSH:
                self._buffers[: boxes.new_buffers.shape[1]] = boxes.new_buffers[slot]
            boxes.buffers[slot] = self._buffers
        self._copies[slot][...] = self._params
        if fence is not None:
            fence()
        boxes.words[boxes.answer(slot, self._number)] = token(self._epoch, entry.turn)
