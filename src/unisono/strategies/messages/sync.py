"""replica: every rank keeps a copy of the parameters, and gradients are summed by an all-reduce of one's choice.

This is what most data-parallel tools do, over any transport and with any of our algorithms, so that they can be
compared with each other and with `sync`. All ranks end with the same bits as each other; another number of ranks gives
other bits, for the sum then has another order.

    strategy = SyncMessages(comm, model, OptimizerOptions("sgd", lr=0.3), "ring", epochs=5)

Limits: the death of a rank ends the run; it goes on from a snapshot, which is made of the first rank's copy.
"""

import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import final

import numpy as np

from unisono import aligned
from unisono.arena.reduction_tree import combine
from unisono.comm.allreduce import all_reduce
from unisono.comm.base import Communicator
from unisono.comm.broadcast_object import broadcast_object
from unisono.data.loader import Group
from unisono.data.shards import shards_of_rank
from unisono.models.base import Model
from unisono.optim import make
from unisono.optim.base import Scale
from unisono.optim.options import OptimizerOptions
from unisono.strategies.arena.arena_join import ArenaStart
from unisono.strategies.arena.state import PersistentArrays, scaling_of, segments_of
from unisono.strategies.base import Batch, Check, Measure, StepResult, Tell, unchecked
from unisono.strategies.messages.base import ReplicaSnapshot, SnapshotMessageStrategy
from unisono.strategies.unused_parameters import Stretches, behind_of, left_alone


@final
@dataclass(frozen=True)
class SyncMessagesOptions:
    """What ranks agree on beside the algorithm."""

    wire: np.dtype | None = None
    """What gradients are sent, and added up, as; None: as they are."""
    shards: int = 0
    """If not 0, the shards of a whole batch: each stays with its rank in smaller batches, too, which leaves ranks idle
    at the ragged end. For those that have something of their own there."""
    steps: int = 1
    """Of an epoch."""


@final
class SyncMessages(SnapshotMessageStrategy):
    """`algorithm`: naive, ring, tree, doubling, halving or native."""

    def __init__(
        self,
        comm: Communicator,
        model: Model,
        options: OptimizerOptions,
        algorithm: str,
        epochs: int = 1,
        terms: SyncMessagesOptions = SyncMessagesOptions(),
    ) -> None:
        super().__init__(comm, model, epochs)
        self._model, self._algorithm, self._terms = model, algorithm, terms
        self._optimizer, self._scaling = make(options), scaling_of(model, options)
        length, segments = len(self.params), segments_of(model)
        self._squares = np.zeros((self._scaling.rows, segments.count))
        self._ranges = segments.ranges(0, length)
        self._stretches = Stretches(self._ranges)
        self.state = [aligned.zeros(length) for _ in self._optimizer.state_names]
        self._rows = aligned.zeros((0, length))
        self._gradient = aligned.zeros(length)
        self._first_row = np.zeros(model.unaveraged - model.fixed, np.float32)
        missed = np.zeros((2, len(model.layout.shapes)), np.int64)
        lasting = PersistentArrays(
            [self.params, *self.state], self.buffers, np.zeros((terms.steps, 2)), self.scores, missed
        )
        self._own, self._position, self._resumed = ReplicaSnapshot(lasting), 0, False
        model.bind(self.params, self.buffers)

    @property
    def at(self) -> tuple[int, bool]:
        return self._position, True

    def go_on(self, start: ArenaStart) -> None:
        """Instead of from the beginning; `start.position` is above 0. Called by every rank."""
        lasting = self._own.lasting
        broadcast_object(self._comm, lambda: start.put_back(lasting) if start.put_back is not None else None)
        for array in lasting.arrays:
            self._comm.broadcast(array)
        self._position, self._resumed = start.position, True
        done = start.position % (len(lasting.steps) + 1)  # 0: the epoch is closed
        self._message_stats.go_on(lasting.steps[: done or None])

    def share(self, live: int) -> range:
        mine = shards_of_rank(self._terms.shards or live, self.size, self.rank)
        return range(min(mine.start, live), min(mine.stop, live))

    def check_reproducible(self) -> None:
        self._model.check_reproducible()

    def step(self, batch: Batch) -> StepResult:
        if batch.step == 0 or self._resumed:
            self._message_stats.begin(batch.step)
            self._resumed = False
        begun = time.perf_counter()
        mine = self.share(batch.live)
        groups = batch.load(mine)
        samples = sum(group.x.shape[0] * group.x.shape[1] for group in groups)
        loaded = time.perf_counter()
        sums, buffers, unused = self._compute(batch, mine, groups)
        if batch.due:
            self.check_reproducible()
        own = self._gradient.copy() if batch.shares else None
        computed = time.perf_counter()
        self._sum_gradients()
        self._comm.all_reduce(sums)
        if buffers.size:
            all_reduce(self._comm, buffers, "sum", self._algorithm)
        if self._model.may_skip_params:
            self._comm.all_reduce(unused, "min")
        if own is not None:
            self._message_stats.exchange(own, self._gradient, samples)
        exchanged = time.perf_counter()
        found, halt = StepResult.of(sums[:-1]), bool(sums[-1, 0])
        if self.buffers.size:
            self._commit_buffers(buffers, batch.live)
        self._scaling.publish(self.params, self._gradient, 0, self._squares)
        scale = self._scaling.scale(self._squares, 0, len(self.params))
        self._update(batch, unused, scale)
        ended = time.perf_counter()
        spent = loaded - begun, computed - loaded, exchanged - computed, ended - exchanged
        self._message_stats.count(found, samples, spent)
        if self.trace is not None:
            self.trace("exchange", computed, exchanged)
            self.trace("update", exchanged, ended)
        steps = self._own.lasting.steps
        steps[batch.step : batch.step + batch.steps] = 0.0
        steps[batch.step] = found.loss_sum, found.correct
        self._own.close_round(batch.position, due=batch.due, halt=halt)
        return found

    def evaluate(
        self, position: int, count: int, measure: Measure, tell: Tell, *, due: bool = False, check: Check = unchecked
    ) -> np.ndarray:
        table = super().evaluate(position, count, measure, tell, due=due, check=check)
        self._own.close_round(position, due=due)
        return table

    def _update(self, batch: Batch, unused: np.ndarray, scale: Scale) -> None:
        """All parameters but those that are unused."""
        optimizer, gradient, behind = self._optimizer, self._gradient, None
        if unused.size and optimizer.counts:
            behind = behind_of(self._own.lasting.missed, batch.number, unused.astype(np.bool_), note=True)
        if behind is None:
            with left_alone([self.params, *self.state], self._ranges, unused) if unused.any() else nullcontext():
                optimizer.update(self.params, gradient, self.state, batch.lr, batch.number, scale)
            return
        for low, high, late in self._stretches.of(behind):
            params, *state = (vector[low:high] for vector in (self.params, *self.state))
            optimizer.update(params, gradient[low:high], state, batch.lr, batch.number - late, scale)

    def _commit_buffers(self, averaged: np.ndarray, live: int) -> None:
        width = len(averaged)
        np.multiply(averaged, np.float32(1.0 / live), out=self.buffers[:width])
        if len(self._first_row):
            self._comm.broadcast(self._first_row, 0)  # shard 0 is rank 0's
            self.buffers[width : width + len(self._first_row)] = self._first_row

    def _compute(self, batch: Batch, mine: range, groups: list[Group]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """This rank's gradients, summed, go to `_gradient`; (loss and correct by shard, sum of new buffers, unused).

        The last row of the first: whether this rank was asked to halt.
        """
        sums, unused = np.zeros((batch.live + 1, 2)), np.ones(len(self._model.layout.shapes), np.int32)
        sums[-1, 0] = self._own.asked
        buffers = np.zeros(len(self.buffers) - self._model.unaveraged, np.float32)
        if len(self._rows) < len(mine):
            self._rows = aligned.zeros((len(mine), len(self.params)))
        noise = batch.noise
        for group in groups:
            at, count = group.first - mine.start, len(group.x)
            seeded = None if noise is None else (lambda j, first=group.first: noise(first + j))
            rows = self._rows[at : at + count]
            found = self._model.loss_and_grad(group.x, group.y, rows, 1.0 / batch.samples, seeded)
            sums[group.first : group.first + count] = np.stack([found.loss_sum, found.correct], axis=1)
            for row in found.new_buffers:
                buffers += row[: len(buffers)]
            if group.first == 0:
                self._first_row[:] = found.new_buffers[0, len(buffers) : len(buffers) + len(self._first_row)]
            unused &= 0 if found.used is None else ~found.used.any(axis=0)
        if mine:
            combine(list(self._rows[: len(mine)]), self._gradient, np.add)
        else:
            self._gradient[:] = 0.0
        return sums, buffers, unused if self._model.may_skip_params else unused[:0]

    def _sum_gradients(self) -> None:
        gradient, wire = self._gradient, self._terms.wire
        sent = gradient if wire is None else gradient.astype(wire)
        all_reduce(self._comm, sent, "sum", self._algorithm)
        if sent is not gradient:
            gradient[...] = sent
