"""replica: every rank keeps a copy of the parameters, and gradients are summed by an all-reduce of one's choice.

This is what most data-parallel tools do, over any transport and with any of our algorithms, so that they can be
compared with each other and with `sync`. All ranks end with the same bits as each other; another number of ranks gives
other bits, for the sum then has another order.

    strategy = Replica(comm, model, OptimizerOptions("sgd", lr=0.3), "ring", epochs=5)

Limits: the death of a rank ends the run; it goes on from a snapshot, which is made of the first rank's copy.
"""

import math
import socket
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, final

import numpy as np

from unisono.arena.canon import combine
from unisono.comm.allreduce import all_reduce
from unisono.comm.base import Communicator
from unisono.comm.telling import told
from unisono.data.loader import Group
from unisono.data.shards import shards_of_rank
from unisono.models.base import Model
from unisono.optim import make
from unisono.optim.options import OptimizerOptions
from unisono.strategies.apart import Apart
from unisono.strategies.base import TIMES, Batch, Clock, Measure, NotFinite, StepResult, Strategy, Tell
from unisono.strategies.contributions import shares as shares_of
from unisono.strategies.contributions import sums as leave_sums
from unisono.strategies.joining import Start
from unisono.strategies.shared import Lasting, padded, scaling_of, segments_of
from unisono.strategies.unused import left_alone

_HOST_BYTES = 64
_COUNTS = ("samples", *TIMES, "memory_bytes")


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
        steps: int = 1,
    ) -> None:
        """steps: of an epoch."""
        self.rank, self.size = comm.rank, comm.size
        self._comm, self._model, self._algorithm = comm, model, algorithm
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
        self._position = self._from_step = 0
        self._apart = Apart(Lasting([self.params, *self.state], self.buffers, np.zeros((steps, 2)), self.scores))
        name = socket.gethostname().encode()[:_HOST_BYTES]
        names = comm.all_gather(np.frombuffer(name.ljust(_HOST_BYTES, b"\0"), np.uint8).copy())
        self._hosts = [row.tobytes().rstrip(b"\0").decode(errors="replace") for row in names]
        model.bind(self.params, self.buffers)

    @property
    def at(self) -> tuple[int, bool]:
        return self._position, True

    def go_on(self, start: Start) -> None:
        """Instead of from the beginning; `start.position` is above 0. Called by every rank."""
        lasting = self._apart.lasting
        told(self._comm, lambda: start.put_back(lasting) if start.put_back is not None else None)
        for array in lasting.arrays:
            self._comm.broadcast(array)
        self._position = start.position
        done = start.position % (len(lasting.steps) + 1)  # 0: the epoch is closed
        for row in lasting.steps[: done or None]:
            self._sums += row

    @property
    def hosts(self) -> list[str]:
        return self._hosts

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, live: int) -> range:
        return shards_of_rank(live, self.size, self.rank)

    @property
    def kept(self) -> Apart:
        return self._apart

    def tell_spares(self, on_spare: Callable[[int], None]) -> None:
        if self.first:
            self._apart.keep(on_spare)

    def ask_to_halt(self) -> None:
        self._apart.asked = True

    def halts_after(self, position: int) -> bool:
        return self._apart.requests.halts_after(position)

    def step(self, batch: Batch) -> StepResult:
        if batch.step == 0:
            self._sums[:] = self._counts[:] = 0.0
        if batch.step == 0 or not self._begun:
            self._comm.barrier()
            self._begun, self._from_step = time.perf_counter(), batch.step
        begun = time.perf_counter()
        mine = self.share(batch.live)
        groups = batch.load(mine)
        samples = sum(group.x.shape[0] * group.x.shape[1] for group in groups)
        loaded = time.perf_counter()
        sums, buffers, unused = self._compute(batch, mine, groups)
        own = self._gradient.copy() if batch.shares else None
        computed = time.perf_counter()
        all_reduce(self._comm, self._gradient, "sum", self._algorithm)
        self._comm.all_reduce(sums)
        if buffers.size:
            all_reduce(self._comm, buffers, "sum", self._algorithm)
        if self._model.skips:
            self._comm.all_reduce(unused, "min")
        if own is not None:
            self._gather_shares(own, samples)
        exchanged = time.perf_counter()
        sums, halt = sums[:-1], bool(sums[-1, 0])
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
        self._apart.lasting.steps[batch.step] = loss_sum, correct
        self._apart.close_round(batch.position, due=batch.due, halt=halt)
        return StepResult(loss_sum, correct)

    def survey(self, position: int, count: int, measure: Measure, tell: Tell, *, due: bool = False) -> np.ndarray:
        self._comm.barrier()
        self._ended = time.perf_counter()
        if not self._begun:  # all steps of the epoch were done before the run was resumed: none is timed
            self._begun, self._from_step = self._ended, len(self._apart.lasting.steps)
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
        self._apart.close_round(position, due=due)
        return table

    def epoch_sums(self) -> tuple[float, float]:
        loss_sum, correct = self._sums.tolist()
        return loss_sum, correct

    def times(self, epoch: int) -> list[dict[str, Any]]:
        # Who came last is not known: the all-reduce waits inside.
        rows = self._gathered[:, :-1].tolist()
        return [dict(zip(_COUNTS[:-1], row, strict=True)) | {"last_steps": 0.0} for row in rows]

    def clock(self) -> Clock:
        return Clock(self._begun, self._ended, self._first_sync_s, self._from_step)

    def note_memory(self, nbytes: int) -> None:
        self._counts[-1] = nbytes

    def memory_bytes(self) -> int:
        return int(self._gathered[:, -1].sum())

    def contributions(self) -> np.ndarray:
        total = sum(self._dealt) or 1  # 0: the run was resumed after the epoch's last step
        return shares_of(self._shares, self._model.layout.sizes, [count / total for count in self._dealt])

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
        sums[-1, 0] = self._apart.asked
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

    def _gather_shares(self, own: np.ndarray, samples: int) -> None:
        mine = np.zeros((2, len(self._model.layout.shapes), 3))
        leave_sums([([own], 0)], self._gradient, self._ranges, mine)
        self._shares[0, :-1] = self._comm.all_gather(mine[0])
        self._shares[0, -1] = mine[1]
        self._dealt = self._comm.all_gather(np.array([samples]))[:, 0].tolist()
