"""sync: every step is one global batch; all ranks of a node share one copy of everything and end with the same bits.

The one idea: a step's gradient is the canonical tree over its *shards*, whoever computed them. Each rank computes the
gradients of a contiguous range of shards, combines them into whole nodes of that tree, and leaves only those in the
arena. After the first meeting each rank finishes the tree for its chunk of the vector and updates that chunk of the
one shared copy of the parameters, in place; after the second meeting (commit) everybody sees the new ones.

    strategy = Sync(comm, model, OptimizerOptions("adam", lr=0.001), shards=8)
    strategy.start(generator(seed, "init"))
    found = strategy.step(loader.groups(order, step, strategy.share(live)), live, samples, lr)

What lies in the arena and who may touch it when:
- params, state, buffers: read by all until *gradients ready*; then each chunk is its owner's until *commit*;
- gradients, losses, new buffers: their writer's until *gradients ready*, then read by all until *commit*;
- sums of squares (clipping, LARS only): written between *gradients ready* and *norms ready*, read until *commit*.

Limits: one node; all its ranks live as long as the run (a lost rank ends it).
"""

import time
from dataclasses import dataclass
from typing import final

import numpy as np

from unisono.arena.barrier import Barrier
from unisono.arena.canon import BLOCK, Span, Tree, chunk_bounds, combine, nodes, tree_over
from unisono.arena.layout import Sections
from unisono.comm.arrival import late
from unisono.comm.base import Communicator
from unisono.comm.node import share_segment
from unisono.data.loader import Group
from unisono.data.shards import shards_of_rank
from unisono.models.base import Model, Noise
from unisono.optim import make
from unisono.optim.norms import Segments
from unisono.optim.options import OptimizerOptions
from unisono.optim.scaling import Scaling
from unisono.resources import usable_cores
from unisono.strategies.base import StepResult, Strategy
from unisono.strategies.contributions import shares as shares_of
from unisono.strategies.contributions import sums as leave_sums

_F4, _F8, _I8 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)
_LOSS, _CORRECT = 0, 1


@final
@dataclass(frozen=True)
class _Cut:
    """How the work on `live` shards is divided."""

    tree: Tree
    """How to finish the sum from what all ranks left in the arena,"""
    parts: list[np.ndarray]
    """of which this is the chunk that this rank owns;"""
    own: list[tuple[np.ndarray, list[np.ndarray]]]
    """and what this rank leaves there: (slot, the gradients of the shards that go into it)."""


@final
class Sync(Strategy):
    """One rank's side. Called by every rank of `comm`, which are all on one node."""

    def __init__(self, comm: Communicator, model: Model, options: OptimizerOptions, shards: int) -> None:
        self.comm, self._model = comm, model
        self._optimizer = make(options)
        layout, length = model.layout, -(-model.layout.length // BLOCK) * BLOCK
        spans = list(zip(layout.offsets, layout.sizes, strict=True))
        segments = Segments(spans, length)
        adapted = [len(shape) > 1 for shape in layout.shapes.values()]
        self._scaling = Scaling(options, segments, adapted)
        self._most = max(len(self._nodes(live, rank)) for live in range(1, shards + 1) for rank in range(comm.size))
        buffers = model.buffers_layout.length
        sections = Sections(
            {
                "flags": (Barrier.words_needed(comm.size), _I8),
                "params": (length, _F4),
                "state": ((len(self._optimizer.state_names), length), _F4),
                "buffers": (buffers, _F4),
                "new buffers": ((shards, buffers), _F4),
                "sums": ((shards, 2), _F8),
                "squares": ((self._scaling.rows, segments.count), _F8),
                "shares": ((comm.size, comm.size + 1, len(spans), 3), _F8),
                "gradients": ((comm.size, self._most, length), _F4),
            }
        )
        segment = share_segment(comm, list(range(comm.size)), sections.nbytes)
        try:
            self.params = sections.array(segment, "params")
            self.state = list(sections.array(segment, "state"))
            self.buffers = sections.array(segment, "buffers")
            self._new_buffers = sections.array(segment, "new buffers")
            self._sums = sections.array(segment, "sums")
            self._squares = sections.array(segment, "squares")
            self._shares = sections.array(segment, "shares")
            self._gradients = sections.array(segment, "gradients")
            words = sections.words(segment, "flags")
        finally:
            segment.close()  # the views keep the memory
        self._barrier = Barrier(words, comm.rank, comm.size, crowded=comm.size > usable_cores())
        self._low, self._high = chunk_bounds(length, comm.size, comm.rank)
        self._ranges = segments.ranges(self._low, self._high)
        self._state_chunks = [row[self._low : self._high] for row in self.state]
        self._cuts: dict[int, _Cut] = {}
        self._row_views: dict[tuple[bool, int, int], np.ndarray] = {}
        self._gradient = np.empty(self._high - self._low, np.float32)
        widest = len(shards_of_rank(shards, comm.size, 0))
        self._rows = np.empty((widest, length), np.float32) if widest > 1 else self._gradients[comm.rank, :1]
        self._rows[:, layout.length :] = 0.0  # padding belongs to nobody and stays zero
        self._gradients[comm.rank, :, layout.length :] = 0.0
        self._steps = 0
        model.bind(self.params, self.buffers)

    def start(self, rng: np.random.Generator) -> None:
        if self.comm.rank == 0:
            self._model.init(self.params[: self._model.layout.length], self.buffers, rng)
        self.comm.barrier()

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
        self._compute(groups, live, 1.0 / samples, noise)
        computed = time.perf_counter()
        self._meet("gradients ready")
        met = time.perf_counter()
        low, high = self._low, self._high
        params, gradient = self.params[low:high], self._gradient
        cut = self._cut(live)
        combine(cut.parts, gradient, np.add, cut.tree)
        if self._scaling.rows:
            self._scaling.publish(params, gradient, low, self._squares)
            self._meet("norms ready")
        scale = self._scaling.scale(self._squares, low, high)
        self._steps += 1
        self._optimizer.update(params, gradient, self._state_chunks, lr, self._steps, scale)
        if self.comm.rank == 0 and self.buffers.size:
            combine(list(self._new_buffers[:live]), self.buffers, np.add)
            np.multiply(self.buffers, np.float32(1.0 / live), out=self.buffers)
        if shares:
            self._leave_shares(live)
        loss_sum, correct = self._sums[:live].sum(axis=0).tolist()
        updated = time.perf_counter()
        self._meet("commit")
        waited = met - computed + time.perf_counter() - updated
        return StepResult(loss_sum, correct, computed - begun, waited, updated - met)

    def contributions(self, counts: list[int]) -> np.ndarray:
        return shares_of(self._shares, self._model.layout.sizes, [count / sum(counts) for count in counts])

    def _leave_shares(self, live: int) -> None:
        low, high = self._low, self._high
        parts: list[tuple[list[np.ndarray], Tree]] = []
        for rank in range(self.comm.size):
            spans = self._nodes(live, rank)
            chunks = [self._gradients[rank, slot, low:high] for slot in range(len(spans))]
            parts.append((chunks, _chain(len(chunks))))
        leave_sums(parts, self._gradient, self._ranges, self._shares[self.comm.rank])

    def _compute(self, groups: list[Group], live: int, scale: float, noise: Noise | None) -> None:
        mine = self.share(live)
        rows = self._rows if len(mine) > 1 else self._gradients[self.comm.rank, :1]
        for group in groups:
            at, count = group.first - mine.start, len(group.x)
            seeded = None if noise is None else (lambda j, first=group.first: noise(first + j))
            # The same object at every step: the model keeps its views of it.
            if (len(mine) > 1, at, count) not in self._row_views:
                self._row_views[len(mine) > 1, at, count] = rows[at : at + count]
            grads = self._row_views[len(mine) > 1, at, count]
            found = self._model.loss_and_grad(group.x, group.y, grads, scale, seeded)
            shards = slice(group.first, group.first + count)
            self._sums[shards, _LOSS], self._sums[shards, _CORRECT] = found.loss_sum, found.correct
            self._new_buffers[shards] = found.new_buffers
        if len(mine) > 1:
            for slot, leaves in self._cut(live).own:
                combine(leaves, slot, np.add)

    def _nodes(self, live: int, rank: int) -> tuple[Span, ...]:
        mine = shards_of_rank(live, self.comm.size, rank)
        return nodes(live, mine.start, mine.stop)

    def _cut(self, live: int) -> "_Cut":
        """Worked out once for each number of shards: usually two, that of a full batch and that of the last."""
        if live not in self._cuts:
            ranks, mine = range(self.comm.size), self.share(live)
            spans = tuple(span for rank in ranks for span in self._nodes(live, rank))
            chunk = slice(self._low, self._high)
            parts = [self._gradients[r, slot, chunk] for r in ranks for slot in range(len(self._nodes(live, r)))]
            own = [
                (self._gradients[self.comm.rank, slot], list(self._rows[start - mine.start : stop - mine.start]))
                for slot, (start, stop) in enumerate(self._nodes(live, self.comm.rank))
            ]
            self._cuts[live] = _Cut(tree_over(spans), parts, own)
        return self._cuts[live]

    def _meet(self, phase: str) -> None:
        try:
            self._barrier.wait(self.comm.timeout_s)
        except TimeoutError:
            raise late(self.comm.rank, phase, self.comm.timeout_s, self._barrier.missing()) from None


def _chain(count: int) -> Tree:
    """Left to right: any order will do for what is only looked at."""
    tree: Tree = 0
    for number in range(1, count):
        tree = tree, number
    return tree
