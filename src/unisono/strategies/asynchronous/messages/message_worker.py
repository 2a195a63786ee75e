"""MessageWorker: computes gradients and sends them; the parameters come back as messages, into its own copy.

The one idea: receives are posted before anything is sent, so nobody waits for anybody's buffer; the next batch is
loaded while the masters are at work.

    worker = MessageWorker(comm, model, terms, copy, buffers, asked); worker.epoch(batch)

Limits: the death of a rank ends the run.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import final

import numpy as np

from unisono import aligned
from unisono.arena.sync.waiting import wait_until
from unisono.comm.base import Communicator, Request
from unisono.data.loader import Group
from unisono.models.base import Model
from unisono.strategies.asynchronous.messages import tags
from unisono.strategies.asynchronous.options import AsyncOptions
from unisono.strategies.asynchronous.push_update import ClippingAndMomentum
from unisono.strategies.base import Batch

POLLED_S = 0.05
"""How long answers are looked for all at once; of later ones it is only known how long they took after one another."""


@final
class MessageWorker:
    """`copy` and `buffers`: what the model is bound to; padded, float32. asked(): whether this rank is to end the run,
    which the sequencer learns with the next message."""

    def __init__(
        self,
        comm: Communicator,
        model: Model,
        terms: AsyncOptions,
        copy: np.ndarray,
        buffers: np.ndarray,
        asked: Callable[[], bool],
    ) -> None:
        self._comm, self._model, self._terms, self._asked = comm, model, terms, asked
        self._parts = [copy[low:high] for low, high in terms.parts]
        self._rows = aligned.zeros((1, len(copy)))
        self.gradient: np.ndarray = self._rows[0]
        """The one that was sent last."""
        self._outgoing = [self.gradient[low:high] for low, high in terms.parts]
        self._buffers, self._new_buffers = buffers, np.zeros(len(buffers) - model.fixed, np.float32)
        self._clipping = ClippingAndMomentum(terms, np.zeros_like(copy) if terms.momentum else None)
        self._head = tags.head()
        self.forget()

    @property
    def clips(self) -> int:
        """Gradients that were clipped."""
        return self._clipping.clips

    def forget(self) -> None:
        """What was counted so far."""
        self.data_s = self.compute_s = 0.0
        self._clipping.clips = 0
        self.waits_s = [0.0] * self._terms.masters

    def epoch(self, batch: Batch) -> None:
        """Until there is no batch left for this worker."""
        self._clipping.start()
        self._head[...] = tags.head(asked=self._asked())
        hand: deque[int] = deque()
        self._exchange(hand, [])
        while hand:
            number = hand.popleft()
            group = self._load(batch, number)
            self._compute(batch, number, group)
            sent = [self._comm.isend(part, master, tags.PART) for master, part in enumerate(self._outgoing)]
            if self._new_buffers.size:
                sent.append(self._comm.isend(self._new_buffers, tags.SEQUENCER, tags.BUFFERS))
            self._exchange(hand, sent, batch)

    def _exchange(self, hand: deque[int], sent: list[Request], batch: Batch | None = None) -> None:
        """Sends the head, loads what is next, and waits for all masters."""
        comm = self._comm
        more = np.empty(1 + tags.AHEAD, np.int64)
        arriving = [comm.irecv(part, master, tags.ANSWER) for master, part in enumerate(self._parts)]
        given = [comm.irecv(more, tags.SEQUENCER, tags.HAND)]
        if self._buffers.size:
            given.append(comm.irecv(self._buffers, tags.SEQUENCER, tags.BUFFERS))
        begun = time.perf_counter()
        sent.append(comm.isend(self._head, tags.SEQUENCER, tags.HEAD))
        self._loaded: tuple[int, Group] | None = None
        if hand and batch is not None:
            self._loaded = hand[0], self._load(batch, hand[0])
        self._hear(arriving, begun)
        for request in (*given, *sent):
            request.wait()
        if more[0] == tags.LEAVE:
            hand.clear()
        else:
            hand.extend(more[1 : 1 + more[0]].tolist())

    def _hear(self, arriving: list[Request], begun: float) -> None:
        """Until all masters have answered; how long each of them took is counted, whoever was first."""
        missing = dict(enumerate(arriving))

        def came() -> bool:
            for master in [number for number, request in missing.items() if request.test()]:
                del missing[master]
                self.waits_s[master] += time.perf_counter() - begun
            return not missing

        if not wait_until(came, POLLED_S):  # inside the wire a wait notices at once that the other side is gone
            for master in [*missing]:
                missing[master].wait()
                self.waits_s[master] += time.perf_counter() - begun

    def _load(self, batch: Batch, number: int) -> Group:
        if self._loaded is not None and self._loaded[0] == number:
            return self._loaded[1]
        begun = time.perf_counter()
        (group,) = batch.load(range(number, number + 1))
        self.data_s += time.perf_counter() - begun
        return group

    def _compute(self, batch: Batch, number: int, group: Group) -> None:
        begun, noise = time.perf_counter(), batch.noise
        seeded = None if noise is None else (lambda shard: noise(number))
        samples = group.x.shape[1]
        found = self._model.loss_and_grad(group.x, group.y, self._rows, 1.0 / samples, seeded)
        self._new_buffers[...] = found.new_buffers[0, : len(self._new_buffers)]
        self._clipping.apply(self.gradient)
        found_sums = float(found.loss_sum[0]), float(found.correct[0])
        self._head[...] = tags.head(number, samples, *found_sums, asked=self._asked())
        self.compute_s += time.perf_counter() - begun
