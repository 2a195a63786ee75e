"""replica: every rank keeps a copy of the parameters, and gradients are summed by an all-reduce of one's choice.

This is what most data-parallel tools do, over any transport and with any of our algorithms, so that they can be
compared with each other and with `sync`. All ranks end with the same bits as each other; another number of ranks gives
other bits, for the sum then has another order.

    strategy = Replica(comm, model, OptimizerOptions("sgd", lr=0.3), "ring", epochs=5)

Limits: the death of a rank ends the run.
"""

import math
import socket
import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from unisono.arena.canon import combine
from unisono.comm.allreduce import all_reduce
from unisono.comm.base import Communicator
from unisono.data.loader import Group
from unisono.data.shards import shards_of_rank
from unisono.models.base import Model
from unisono.optim import make
from unisono.optim.options import OptimizerOptions
from unisono.strategies.base import TIMES, Batch, Clock, Measure, NotFinite, StepResult, Strategy, Tell
from unisono.strategies.contributions import shares as shares_of
from unisono.strategies.contributions import sums as leave_sums
from unisono.strategies.shared import padded, scaling_of, segments_of
from unisono.strategies.unused import left_alone

_HOST_BYTES = 64
_COUNTS = ("samples", *TIMES, "memory_bytes")


@final
@dataclass(frozen=True)
class Terms:
    """What ranks agree on beside the algorithm."""

    wire: np.dtype | None = None
    """What gradients are sent, and added up, as; None: as they are."""
    shards: int = 0
    """If not 0, the shards of a whole batch: each stays with its rank in smaller batches, too, which leaves ranks idle
    at the ragged end. For those that have something of their own there."""


@final
class Replica(Strategy):
    """`algorithm`: naive, ring, tree, doubling, halving or native."""

    def __init__(
        self,
        comm: Communicator,
        model: Model,
        options: OptimizerOptions,
        algorithm: str,
        epochs: int = 1,
        terms: Terms = Terms(),  # noqa: B008 - frozen
    ) -> None:
        self.rank, self.size = comm.rank, comm.size
        self._comm, self._model, self._algorithm, self._terms = comm, model, algorithm, terms
        self._optimizer, self._scaling = make(options), scaling_of(model, options)
        length, segments = padded(model.layout.length), segments_of(model)
        self._squares = np.zeros((self._scaling.rows, segments.count))
        self._ranges = segments.ranges(0, length)
        self.params = np.zeros(length, np.float32)
        self.state = [np.zeros(length, np.float32) for _ in self._optimizer.state_names]
        self.buffers = np.zeros(model.buffers_layout.length, np.float32)
        self.scores = np.zeros((epochs + 1, 3))
        self._rows = np.zeros((0, length), np.float32)
        self._gradient = np.zeros(length, np.float32)
        self._first_row = np.zeros(model.taken - model.fixed, np.float32)
        self._shares = np.zeros((1, comm.size + 1, len(model.layout.shapes), 3))
        self._dealt = [0] * comm.size
        self._sums = np.zeros(2)
        self._counts = np.zeros(len(_COUNTS))
        self._gathered = np.zeros((comm.size, len(_COUNTS)))
        self._begun = self._ended = self._first_sync_s = 0.0
        name = socket.gethostname().encode()[:_HOST_BYTES]
        names = comm.all_gather(np.frombuffer(name.ljust(_HOST_BYTES, b"\0"), np.uint8).copy())
        self._hosts = [row.tobytes().rstrip(b"\0").decode(errors="replace") for row in names]
        model.bind(self.params, self.buffers)

    @property
    def at(self) -> tuple[int, bool]:
        return 0, True

    @property
    def hosts(self) -> list[str]:
        return self._hosts

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, live: int) -> range:
        mine = shards_of_rank(self._terms.shards or live, self.size, self.rank)
        return range(min(mine.start, live), min(mine.stop, live))

    def halts_after(self, position: int) -> bool:
        return False

    def step(self, batch: Batch) -> StepResult:
        if batch.step == 0:
            self._sums[:] = self._counts[:] = 0.0
            self._comm.barrier()
            self._begun = time.perf_counter()
        begun = time.perf_counter()
        mine = self.share(batch.live)
        groups = batch.load(mine)
        samples = sum(group.x.shape[0] * group.x.shape[1] for group in groups)
        loaded = time.perf_counter()
        sums, buffers, unused = self._compute(batch, mine, groups)
        own = self._gradient.copy() if batch.shares else None
        computed = time.perf_counter()
        self._sum_gradients()
        self._comm.all_reduce(sums)
        if buffers.size:
            all_reduce(self._comm, buffers, "sum", self._algorithm)
        if self._model.skips:
            self._comm.all_reduce(unused, "min")
        if own is not None:
            self._gather_shares(own, samples)
        exchanged = time.perf_counter()
        loss_sum, correct = sums.sum(axis=0).tolist()
        if not math.isfinite(loss_sum):
            shard = int(np.argmin(np.isfinite(sums[:, 0])))
            raise NotFinite(shard, float(sums[shard, 0]))
        if self.buffers.size:
            self._commit_buffers(buffers, batch.live)
        self._scaling.publish(self.params, self._gradient, 0, self._squares)
        scale = self._scaling.scale(self._squares, 0, len(self.params))
        with left_alone([self.params, *self.state], self._ranges, unused) if unused.any() else nullcontext():
            self._optimizer.update(self.params, self._gradient, self.state, batch.lr, batch.number, scale)
        self._sums += loss_sum, correct
        ended = time.perf_counter()
        self._counts += samples, loaded - begun, computed - loaded, exchanged - computed, ended - exchanged, 0
        self._first_sync_s = self._first_sync_s or ended - computed
        return StepResult(loss_sum, correct)

    def survey(self, position: int, count: int, measure: Measure, tell: Tell, *, due: bool = False) -> np.ndarray:
        self._comm.barrier()
        self._ended = time.perf_counter()
        table = np.zeros((count, 2))
        for number in shards_of_rank(count, self.size, self.rank):
            table[number] = measure(number)
        if count:
            self._comm.all_reduce(table)  # adds zeros, exactly
        gathered = self._comm.gather(self._counts)
        if gathered is not None:
            self._gathered = gathered
            tell(table)
        self._comm.broadcast(self.scores)  # which `tell` may have filled
        return table

    def epoch_sums(self) -> tuple[float, float]:
        loss_sum, correct = self._sums.tolist()
        return loss_sum, correct

    def times(self, epoch: int) -> list[dict[str, Any]]:
        # Who came last is not known: the all-reduce waits inside.
        rows = self._gathered[:, :-1].tolist()
        return [dict(zip(_COUNTS[:-1], row, strict=True)) | {"last_steps": 0.0} for row in rows]

    def clock(self) -> Clock:
        return Clock(self._begun, self._ended, self._first_sync_s, 0)

    def note_memory(self, nbytes: int) -> None:
        self._counts[-1] = nbytes

    def memory_bytes(self) -> int:
        return int(self._gathered[:, -1].sum())

    def contributions(self) -> np.ndarray:
        total = sum(self._dealt)
        return shares_of(self._shares, self._model.layout.sizes, [count / total for count in self._dealt])

    def _commit_buffers(self, averaged: np.ndarray, live: int) -> None:
        width = len(averaged)
        np.multiply(averaged, np.float32(1.0 / live), out=self.buffers[:width])
        if len(self._first_row):
            self._comm.broadcast(self._first_row, 0)  # shard 0 is rank 0's
            self.buffers[width : width + len(self._first_row)] = self._first_row

    def _compute(self, batch: Batch, mine: range, groups: list[Group]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """This rank's gradients, summed, go to `_gradient`; (loss and correct by shard, sum of new buffers, unused)."""
        sums, unused = np.zeros((batch.live, 2)), np.ones(len(self._model.layout.shapes), np.int32)
        buffers = np.zeros(len(self.buffers) - self._model.taken, np.float32)
        if len(self._rows) < len(mine):
            self._rows = np.zeros((len(mine), len(self.params)), np.float32)
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
        return sums, buffers, unused if self._model.skips else unused[:0]

    def _sum_gradients(self) -> None:
        gradient, wire = self._gradient, self._terms.wire
        sent = gradient if wire is None else gradient.astype(wire)
        all_reduce(self._comm, sent, "sum", self._algorithm)
        if sent is not gradient:
            gradient[...] = sent

    def _gather_shares(self, own: np.ndarray, samples: int) -> None:
        mine = np.zeros((2, len(self._model.layout.shapes), 3))
        leave_sums([([own], 0)], self._gradient, self._ranges, mine)
        self._shares[0, :-1] = self._comm.all_gather(mine[0])
        self._shares[0, -1] = mine[1]
        self._dealt = self._comm.all_gather(np.array([samples]))[:, 0].tolist()
