"""LocalSteps: how far each replica gets alone, told as if it were the gradient of a shard.

The one idea: a replica starts where the average lies, walks some steps of its own with its own optimizer state, and
what it leaves is w * (average - where it got to), w its share of the samples. The average minus the sum of these is the
weighted mean of the replicas. So averaging is a step of plain SGD at rate 1 whose "shards" are replicas, and whatever
sums the gradients of shards (`strategies/arena/sync.py`, `strategies/messages/sync.py`) averages replicas as well:
in the same order, redone after a death in the same way.

    local_steps = LocalSteps(home, walker, OptimizerOptions("momentum", lr=0.1), wire=None);
    local_steps.settle(states, between) local_steps.open(batches, position); local_steps.loss_and_grad(ticket(replica,
    samples), ...)

Two models: `home` evaluates where the average lies, `walker` computes in this process's own vectors, for one replica
after the other; each walks all its steps while its parameters are in the cache. Nothing here outlives a round but the
states, which are there twice (`replica_optimizer_state.py`), so a round can be begun anew by anybody.

Limits: a replica clips its own gradient, and Adam sees its own alone. The time that loading takes counts as computing.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import final

import numpy as np

from unisono import aligned
from unisono.models.base import Array, Model, Noise, ShardSums
from unisono.models.wrappers import Wrapper
from unisono.optim import make
from unisono.optim.options import OptimizerOptions
from unisono.strategies.arena.state import padded, scaling_of, segments_of
from unisono.strategies.base import Batch
from unisono.strategies.local.replica_optimizer_state import ReplicaState
from unisono.strategies.unused_parameters import left_alone


def ticket(replica: int, samples: int) -> Array:
    """(1, samples): what a replica is called by, in the shape of the samples of a shard."""
    return np.broadcast_to(np.int64(replica), (1, samples))


@final
class LocalSteps(Wrapper):
    """`options`: of the replicas' own steps; `wire`: what the movement of a replica is rounded to, if anything."""

    def __init__(self, home: Model, walker: Model, options: OptimizerOptions, wire: np.dtype | None = None) -> None:
        super().__init__(home)
        self.wire = wire
        self.may_skip_params, self.exchange_width = False, 0  # settled within each journey
        self._walker, self._optimizer, self._scaling = walker, make(options), scaling_of(walker, options)
        segments, length = segments_of(walker), padded(walker.layout.length)
        self._ranges = segments.ranges(0, length)
        self._squares = np.zeros((self._scaling.rows, segments.count))
        self._params, self._gradient = aligned.zeros(length), aligned.zeros((1, length))
        self._buffers = aligned.zeros(walker.buffers_layout.length)
        self._moving = len(self._buffers) - walker.fixed
        self._sums = np.zeros((2, 1))
        self._found = ShardSums(self._sums[0], self._sums[1], self._buffers[None])
        self._states: ReplicaState | None = None
        self._between: Callable[[], None] = lambda: None
        self._batches: Sequence[Batch] = ()
        self._position = 0
        walker.bind(self._params, self._buffers)

    @property
    def state_vectors(self) -> int:
        """How many a replica keeps."""
        return len(self._optimizer.state_names)

    def settle(self, states: ReplicaState | None, between: Callable[[], None] = lambda: None) -> None:
        """Where replicas keep their state, if they have any; `between` is called before each step, and may raise."""
        self._states, self._between = states, between

    def bind(self, params: Array, buffers: Array) -> None:
        """These are the average."""
        super().bind(params, buffers)
        self._average, self._committed = params, buffers

    def check_reproducible(self) -> None:
        self._walker.check_reproducible()

    def open(self, batches: Sequence[Batch], position: int) -> None:
        """The steps that replicas walk until round `position`, in which they meet."""
        self._batches, self._position = batches, position

    def loss_and_grad(self, x: Array, y: Array, grads: Array, scale: float, noise: Noise | None = None) -> ShardSums:
        """x: the `ticket` of one replica. Its losses are those of all its steps, its buffers those it ends with."""
        replica, samples = int(x[0, 0]), x.shape[1]
        states, row = self._states, grads[0]
        self._params[...], self._buffers[...], self._sums[...] = self._average, self._committed, 0.0
        state = states.begin(replica, self._position) if states is not None else []
        for batch in self._batches:
            if replica < batch.live:
                self._between()
                self._walk(replica, batch, state)
        if states is not None:
            states.end(replica, self._position)
        np.subtract(self._average, self._params, out=row)
        np.multiply(row, np.float32(samples * scale), out=row)
        if self.wire is not None:
            row[...] = row.astype(self.wire)
        return self._found

    def _walk(self, replica: int, batch: Batch, state: list[np.ndarray]) -> None:
        """One step of one replica."""
        (group,) = batch.load(range(replica, replica + 1))
        noise, gradient, params = batch.noise, self._gradient, self._params
        seeded = None if noise is None else (lambda _: noise(replica))
        found = self._walker.loss_and_grad(group.x, group.y, gradient, 1.0 / group.x.shape[1], seeded)
        self._sums[0] += found.loss_sum
        self._sums[1] += found.correct
        self._scaling.publish(params, gradient[0], 0, self._squares)
        scale = self._scaling.scale(self._squares, 0, len(params))
        unused = None if found.used is None else ~found.used[0]
        with nullcontext() if unused is None else left_alone([params, *state], self._ranges, unused):
            self._optimizer.update(params, gradient[0], state, batch.lr, batch.number, scale)
        self._buffers[: self._moving] = found.new_buffers[0, : self._moving]
