"""replica: every rank keeps a copy of the parameters, and gradients are summed by an all-reduce of one's choice.

This is what most data-parallel tools do, over any transport and with any of our algorithms, so that they can be
compared with each other and with `sync`. All ranks end with the same bits as each other; another number of ranks gives
other bits, for the sum then has another order.

    strategy = Replica(comm, model, OptimizerOptions("sgd", lr=0.3), "ring")
"""

import time
from typing import final

import numpy as np

from unisono.arena.canon import BLOCK, combine
from unisono.comm.allreduce import all_reduce
from unisono.comm.base import Communicator
from unisono.data.loader import Group
from unisono.models.base import Model, Noise
from unisono.optim import make
from unisono.optim.norms import Segments
from unisono.optim.options import OptimizerOptions
from unisono.optim.scaling import Scaling
from unisono.strategies.base import StepResult, Strategy
from unisono.strategies.contributions import shares as shares_of
from unisono.strategies.contributions import sums as leave_sums


@final
class Replica(Strategy):
    """`algorithm`: naive, ring, tree, doubling, halving or native."""

    def __init__(self, comm: Communicator, model: Model, options: OptimizerOptions, algorithm: str) -> None:
        self.comm, self._model, self._algorithm = comm, model, algorithm
        self._optimizer = make(options)
        layout, length = model.layout, -(-model.layout.length // BLOCK) * BLOCK
        segments = Segments(list(zip(layout.offsets, layout.sizes, strict=True)), length)
        self._scaling = Scaling(options, segments, [len(shape) > 1 for shape in layout.shapes.values()])
        self._squares = np.zeros((self._scaling.rows, segments.count))
        self._ranges = segments.ranges(0, length)
        self.params = np.zeros(length, np.float32)
        self.state = [np.zeros(length, np.float32) for _ in self._optimizer.state_names]
        self.buffers = np.zeros(model.buffers_layout.length, np.float32)
        self._rows = np.zeros((0, length), np.float32)
        self._gradient = np.zeros(length, np.float32)
        self._shares = np.zeros((1, comm.size + 1, len(layout.shapes), 3))
        self._steps = 0
        model.bind(self.params, self.buffers)

    def start(self, rng: np.random.Generator) -> None:
        self._model.init(self.params[: self._model.layout.length], self.buffers, rng)

    def step(
        self,
        groups: list[Group],
        live: int,
        samples: int,
        lr: float,
        noise: Noise | None = None,
        *,
        shares: bool = False,
    ) -> StepResult:
        begun = time.perf_counter()
        sums, buffers = self._compute(groups, live, 1.0 / samples, noise)
        own = self._gradient.copy() if shares else None
        computed = time.perf_counter()
        all_reduce(self.comm, self._gradient, "sum", self._algorithm)
        self.comm.all_reduce(sums)
        if buffers.size:
            all_reduce(self.comm, buffers, "sum", self._algorithm)
            np.multiply(buffers, np.float32(1.0 / live), out=self.buffers)
        if own is not None:
            self._gather_shares(own)
        exchanged = time.perf_counter()
        self._scaling.publish(self.params, self._gradient, 0, self._squares)
        scale = self._scaling.scale(self._squares, 0, len(self.params))
        self._steps += 1
        self._optimizer.update(self.params, self._gradient, self.state, lr, self._steps, scale)
        loss_sum, correct = sums.tolist()
        return StepResult(loss_sum, correct, computed - begun, exchanged - computed, time.perf_counter() - exchanged)

    def contributions(self, counts: list[int]) -> np.ndarray:
        return shares_of(self._shares, self._model.layout.sizes, [count / sum(counts) for count in counts])

    def _compute(
        self, groups: list[Group], live: int, scale: float, noise: Noise | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """This rank's gradients, summed, go to `_gradient`; (loss and correct, sum of new buffers) of its shards."""
        mine = self.share(live)
        sums, buffers = np.zeros(2), np.zeros_like(self.buffers)
        if len(self._rows) < len(mine):
            self._rows = np.zeros((len(mine), len(self.params)), np.float32)
        for group in groups:
            at, count = group.first - mine.start, len(group.x)
            seeded = None if noise is None else (lambda j, first=group.first: noise(first + j))
            found = self._model.loss_and_grad(group.x, group.y, self._rows[at : at + count], scale, seeded)
            sums += found.loss_sum.sum(), found.correct.sum()
            for row in found.new_buffers:
                buffers += row
        if mine:
            combine(list(self._rows[: len(mine)]), self._gradient, np.add)
        else:
            self._gradient[:] = 0.0
        return sums, buffers

    def _gather_shares(self, own: np.ndarray) -> None:
        mine = np.zeros((2, len(self._ranges), 3))
        leave_sums([([own], 0)], self._gradient, self._ranges, mine)
        self._shares[0, :-1] = self.comm.all_gather(mine[0])
        self._shares[0, -1] = mine[1]
