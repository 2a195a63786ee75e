"""ParameterShard: a master's stretch of the parameters: applies the log's entries to it, one after the other, and
answers.

The one idea: the answer *is* the update. An entry reads the present parameters, which lie in the copy of the worker
that was answered last, and writes the new ones into the copy of the worker that it answers: nothing is copied for the
sake of answering, and the old values are still there if the writer dies. What would be overwritten (an optimizer's
state, collected gradients, the copy of a worker that pushes twice in a row) is kept aside before, so that whoever
serves the part next can take the entry back and do it again.

    part = ParameterShard(async_buffers, shared.vectors, buffers, 0, terms, options); part.open(epoch, pushes)
    while part.behind: part.turn()
    part.close()

What an entry does depends on the log and the boxes alone, so every master does the same.
"""

import time
from collections.abc import Sequence
from typing import final

import numpy as np

from unisono.arena.memory.fence import fence
from unisono.optim.options import OptimizerOptions
from unisono.strategies.arena.state import ArenaState
from unisono.strategies.asynchronous.arena.buffers import (
    APPLIED,
    BEGUN,
    ORDERED,
    AsyncBuffers,
    AsyncSetup,
    count_of,
    token,
)
from unisono.strategies.asynchronous.options import AsyncOptions
from unisono.strategies.asynchronous.push_update import Places, PushUpdate, numbers_of
from unisono.strategies.asynchronous.sequencer import PUSH, Entry


@final
class ParameterShard:
    """`vectors`: parameters and the optimizer's state. `buffers`: the model's, which go with part 0."""

    def __init__(
        self,
        async_buffers: AsyncBuffers,
        vectors: Sequence[np.ndarray],
        buffers: np.ndarray,
        number: int,
        terms: AsyncOptions,
        options: OptimizerOptions,
    ) -> None:
        low, high = terms.parts[number]
        self._async_buffers, self._number = async_buffers, number
        self._params, state = vectors[0][low:high], [vector[low:high] for vector in vectors[1:]]
        collected = [vector[low:high] for vector in async_buffers.collected]
        self._applying = PushUpdate(terms, options, high - low, state, collected[0] if collected else None)
        self._gradients = [row[low:high] for row in async_buffers.gradients]
        self._copies = [row[low:high] for row in async_buffers.copies]
        twins = [twin[low:high] for twin in async_buffers.twins]
        self._twin, self._pairs = twins[0], list(zip((*state, *collected), twins[1:], strict=True))
        self._compensates, self._group = terms.rule.compensates, terms.group
        self._buffers = buffers if number == 0 else buffers[:0]
        self._at = async_buffers.part(number)
        self.busy_s = 0.0
        """Spent on updating and answering."""

    def open(self, epoch: int, pushes: int) -> None:
        """Continues where the rank that served the part before has stopped."""
        async_buffers, words = self._async_buffers, self._async_buffers.words
        self._epoch, self._pushes, self._applied = epoch, pushes, -1
        last = self.sync()
        if words[self._at + BEGUN] == token(epoch, self._applied + 1):
            self._take_back(async_buffers.entry(self._applied))
        if last is None or last.rank < 0:
            return
        if words[async_buffers.answer(last.rank, self._number)] < token(epoch, last.turn):
            self._answer(last)

    def sync(self) -> Entry | None:
        """Catches up with what others did to the part; the last entry that is applied."""
        async_buffers, applied = (
            self._async_buffers,
            count_of(self._async_buffers.words[self._at + APPLIED], self._epoch),
        )
        last = async_buffers.entry(applied - 1) if applied else None
        if applied == self._applied:
            return last
        self._applied = applied
        self._current = self._params if last is None else self._place(last)
        self._applying.weight = 0
        for number in range(applied - 1, -1, -1):
            entry = async_buffers.entry(number)
            if entry.updates:
                break
            self._applying.weight += entry.samples if entry.kind == PUSH else 0
        return last

    @property
    def behind(self) -> bool:
        """Whether the log has entries that are not applied."""
        words = self._async_buffers.words
        return words[self._at + APPLIED] < words[ORDERED] and self._async_buffers.ordered(self._epoch) > 0

    def turn(self) -> bool:
        """Applies an entry, if there is one."""
        if not self.behind:
            return False
        begun = time.perf_counter()
        if fence is not None:
            fence()
        entry = self._async_buffers.entry(self._applied)
        self._keep(entry)
        new = self._place(entry)
        seen = new if entry.rank >= 0 else self._current
        numbers = numbers_of(entry, self._epoch, self._pushes, self._group)
        self._applying.apply(entry, self._gradients[entry.rank], Places(self._current, seen, new), numbers)
        self._current = new
        self._applied += 1
        if fence is not None:
            fence()
        self._async_buffers.words[self._at + APPLIED] = token(self._epoch, self._applied)
        self._answer(entry)
        spent_s = time.perf_counter() - begun
        self.busy_s += spent_s
        self._async_buffers.busy[self._number] += spent_s
        return True

    def close(self) -> None:
        """After the last entry of an epoch: the parameters go where they are at rest."""
        if self._current is not self._params:
            self._params[...] = self._current

    def _place(self, entry: Entry) -> np.ndarray:
        """Where the parameters are after an entry: with the worker that is answered, or where they are at rest."""
        return self._copies[entry.rank] if entry.rank >= 0 else self._params

    def _keep(self, entry: Entry) -> None:
        """What cannot be had again once the entry is begun, and that it is begun."""
        for vector, twin in self._pairs:
            twin[...] = vector
        if self._overwrites(entry):
            self._twin[...] = self._place(entry)
        if fence is not None:
            fence()
        self._async_buffers.words[self._at + BEGUN] = token(self._epoch, self._applied + 1)

    def _take_back(self, entry: Entry) -> None:
        for vector, twin in self._pairs:
            vector[...] = twin
        if self._overwrites(entry):
            self._place(entry)[...] = self._twin

    def _overwrites(self, entry: Entry) -> bool:
        """Whether the only copy of something is where the new parameters will be: a worker that pushes twice in a row
        has the present ones; and what a worker has seen may count."""
        return self._place(entry) is self._current or self._compensates

    def _answer(self, entry: Entry) -> None:
        """Tells who sent the entry that its copy is new."""
        if entry.rank < 0:
            return
        async_buffers, slot = self._async_buffers, entry.rank
        if self._buffers.size:
            if entry.kind == PUSH:
                self._buffers[: async_buffers.new_buffers.shape[1]] = async_buffers.new_buffers[slot]
            async_buffers.buffers[slot][...] = self._buffers
        if fence is not None:
            fence()
        async_buffers.words[async_buffers.answer(slot, self._number)] = token(self._epoch, entry.turn)
        async_buffers.ring(slot)


def make_parts(setup: AsyncSetup, shared: ArenaState) -> list[ParameterShard]:
    """All parts of the parameters."""
    return [
        ParameterShard(setup.async_buffers, shared.vectors, shared.buffers, number, setup.terms, setup.options)
        for number in range(setup.terms.masters)
    ]
