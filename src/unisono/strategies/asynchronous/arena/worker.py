"""Worker: computes gradients on its own copy of the parameters, which masters refresh whenever it has sent something.

The one idea: a worker is a small machine of states that never blocks: greet, then again and again compute, post, load
the next batch while the masters answer. So a rank that also serves parts, for one that died, can do both in turn.

    worker = Worker(async_buffers, slot=2, model, terms); worker.open(batch, sequencer=0)
    while ...: worker.turn()

The model is bound to the worker's copy. A worker that had nothing to do for a while, and is given a dead one's batches,
greets again before it goes on: nobody has waited for it, and its copy has aged.
"""

import time
from typing import final

from unisono.arena.memory.fence import fence
from unisono.data.loader import Group
from unisono.models.base import Model
from unisono.strategies.asynchronous.arena.arena_sequencer import AHEAD
from unisono.strategies.asynchronous.arena.buffers import (
    DEALT,
    FRESH,
    HAND,
    LEAVING,
    POSTED,
    USED,
    AsyncBuffers,
    count_of,
    token,
)
from unisono.strategies.asynchronous.options import AsyncOptions
from unisono.strategies.asynchronous.push_update import ClippingAndMomentum
from unisono.strategies.base import Batch


@final
class Worker:
    """The rank in `slot`."""

    def __init__(self, async_buffers: AsyncBuffers, slot: int, model: Model, terms: AsyncOptions) -> None:
        self._async_buffers, self._slot, self._model, self._terms = async_buffers, slot, model, terms
        self._own, self._hand = async_buffers.worker(slot), async_buffers.hand(slot)
        self._answers = [async_buffers.answer(slot, number) for number in range(terms.masters)]
        self._rows = async_buffers.gradients[slot : slot + 1]
        self._clipping = ClippingAndMomentum(terms, async_buffers.velocities[slot] if terms.momentum else None)
        self._epoch = self._refreshed = 0
        self.forget()

    def forget(self) -> None:
        """What was counted so far."""
        self.data_s = self.compute_s = 0.0
        self._clipping.clips = 0
        self.waits_s = [0.0] * self._terms.masters

    @property
    def clips(self) -> int:
        """Gradients that were clipped."""
        return self._clipping.clips

    def open(self, batch: Batch, sequencer: int) -> None:
        """Begins an epoch, or goes on with it after a change of membership; a new process greets first."""
        self._sequencer = sequencer
        words = self._async_buffers.words
        self._batch = batch
        self._turn = count_of(words[self._own + POSTED], batch.epoch)
        self._used = count_of(words[self._own + USED], batch.epoch)
        self._missing, self._sent = list(range(len(self._answers))), time.perf_counter()
        self._loaded: tuple[int, Group] | None = None
        if batch.epoch != self._epoch:
            words[self._own + LEAVING] = words[self._own + POSTED]  # whoever was here before may have died at it
            self._epoch, self._greets = batch.epoch, True

    def turn(self) -> bool:
        """Does what can be done without waiting; whether that was anything."""
        if not self._answered():
            return self._load() is not None if self._loaded is None else False
        if self._greets:
            return self._greet()
        loaded = self._loaded or self._load()
        if loaded is None:
            return False
        if self._refreshed != self._async_buffers.words[self._hand + FRESH] == token(self._epoch, self._used + 1):
            return self._greet()
        self._loaded = None
        self._compute(*loaded)
        return True

    def _greet(self) -> bool:
        self._greets, self._refreshed = False, self._async_buffers.words[self._hand + FRESH]
        self._clipping.start()
        self._post(1.0, -1.0, 0.0, 0.0, 0.0)
        return True

    def _answered(self) -> bool:
        """Whether all masters have answered what was sent last; how long each took is counted."""
        if not self._missing:
            return True
        words, wanted = self._async_buffers.words, token(self._epoch, self._turn)
        came = [number for number in self._missing if words[self._answers[number]] >= wanted or not self._turn]
        if came:
            waited_s = time.perf_counter() - self._sent
            for number in came:
                self._missing.remove(number)
                self.waits_s[number] += waited_s
            if fence is not None:
                fence()
        return not self._missing

    def _load(self) -> tuple[int, Group] | None:
        """The next batch in hand, if there is one."""
        words = self._async_buffers.words
        if count_of(words[self._hand + DEALT], self._epoch) <= self._used:
            return None
        if fence is not None:
            fence()
        begun = time.perf_counter()
        number = words[self._hand + HAND + self._used % AHEAD]
        (group,) = self._batch.load(range(number, number + 1))
        self.data_s += time.perf_counter() - begun
        self._loaded = number, group
        return self._loaded

    def _compute(self, number: int, group: Group) -> None:
        begun, noise, slot = time.perf_counter(), self._batch.noise, self._slot
        seeded = None if noise is None else (lambda shard: noise(number))
        samples = group.x.shape[1]
        found = self._model.loss_and_grad(group.x, group.y, self._rows, 1.0 / samples, seeded)
        width = self._async_buffers.new_buffers.shape[1]
        if width:
            self._async_buffers.new_buffers[slot] = found.new_buffers[0, :width]
        self._clipping.apply(self._rows[0])
        loss_sum, correct = float(found.loss_sum[0]), float(found.correct[0])
        self.compute_s += time.perf_counter() - begun
        self._used += 1
        self._async_buffers.words[self._own + LEAVING] = token(self._epoch, self._turn + 1)
        if fence is not None:
            fence()
        self._async_buffers.words[self._own + USED] = token(self._epoch, self._used)
        self._post(0.0, float(number), float(samples), loss_sum, correct)

    def _post(self, *found: float) -> None:
        async_buffers = self._async_buffers
        async_buffers.found[self._slot] = found
        self._turn += 1
        self._missing, self._sent = list(range(len(self._answers))), time.perf_counter()
        if fence is not None:
            fence()
        async_buffers.words[self._own + POSTED] = token(self._epoch, self._turn)
        async_buffers.ring(self._sequencer)
