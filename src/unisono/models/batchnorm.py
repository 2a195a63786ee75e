"""BatchNorm: each feature to mean 0 and variance 1 over the shard, then times gamma, plus beta; torch's conventions.

The one idea: statistics are those of one shard, so they depend on no other rank, and what a shard makes of the running
statistics goes into its own row of the new buffers; whoever commits the step averages the rows.

    BatchNorm(32).open(room).forward(x)         # fills room.new_buffers as well

eps 1e-5, momentum 0.1, running variance unbiased, all as torch's BatchNorm1d. One departure: where torch refuses a
batch of one sample, such a shard (a ragged end can leave one) is normalised to zero and leaves the running variance.
"""

from typing import final

import numpy as np
from numpy import add, divide, matmul, multiply, sqrt, subtract

from unisono import aligned
from unisono.models.base import Array, Layout
from unisono.models.layers import Layer, Pass, Room

EPS = 1e-5
MOMENTUM = 0.1


@final
class BatchNorm(Layer):
    """Parameters gamma and beta (torch: weight and bias), buffers running_mean and running_var."""

    def __init__(self, features: int) -> None:
        self.layout = Layout({"gamma": (features,), "beta": (features,)})
        self.buffers_layout = Layout({"running_mean": (features,), "running_var": (features,)})

    def init(self, params: Array, buffers: Array, rng: np.random.Generator) -> None:
        params.reshape(2, -1)[...] = [[1.0], [0.0]]
        buffers.reshape(2, -1)[...] = [[0.0], [1.0]]

    def open(self, room: Room) -> Pass:
        return BatchNormPass(room)


@final
class BatchNormPass(Pass):
    """h features. Mean above variance, gamma above beta: one operation serves both."""

    def __init__(self, room: Room) -> None:
        k, b, h = room.shape
        dtype = room.params.dtype
        self.gamma, self.beta = room.params.reshape(2, h)  # (h,), (h,)
        self.running = room.buffers.reshape(2, h)  # (2, h)
        self.new_running = room.new_buffers.reshape(k, 2, h)
        self.stats = aligned.stack(k, (2, h), dtype)
        self.mean, self.var = self.stats[:, :1], self.stats[:, 1:]  # (k, 1, h) each
        self.inv, self.slope, self.pull = (aligned.stack(k, (1, h), dtype) for _ in range(3))
        self.kept = aligned.empty((2, h), dtype)
        self.centred, self.work, self.y = room.empty(h), room.empty(h), room.empty(h)
        self.means = aligned.stack(k, (2, h), dtype)
        self.mean_dgamma, self.mean_dbeta = self.means[:, :1], self.means[:, 1:]  # (k, 1, h) each
        self.ones, self.average = room.rows(1.0), room.rows(1 / b)  # (1, b)
        self.one, self.eps, self.share = (room.constant(value) for value in (1.0, EPS, 1 / b))
        fresh = MOMENTUM * b / (b - 1) if b > 1 else 0.0
        self.fresh = np.array([[MOMENTUM], [fresh]], dtype)  # (2, 1)
        self.stale = np.array([[1 - MOMENTUM], [1 - MOMENTUM if b > 1 else 1.0]], dtype)  # (2, 1)

    def bind_grads(self, grads: Array) -> None:
        self.dboth = grads.reshape(len(grads), 2, -1)  # (k, 2, h)
        self.dgamma, self.dbeta = self.dboth[:, :1], self.dboth[:, 1:]  # (k, 1, h) each

    def forward(self, x: Array) -> Array:
        matmul(self.average, x, out=self.mean)  # (1, b) x (k, b, h) -> (k, 1, h)
        subtract(x, self.mean, out=self.centred)  # (k, b, h)
        multiply(self.centred, self.centred, out=self.work)  # (k, b, h)
        matmul(self.average, self.work, out=self.var)  # (k, 1, h)
        self._normalise()
        multiply(self.stats, self.fresh, out=self.new_running)  # (k, 2, h)
        multiply(self.running, self.stale, out=self.kept)  # (2, h)
        add(self.new_running, self.kept, out=self.new_running)  # (k, 2, h)
        return self.y

    def _normalise(self) -> None:
        add(self.var, self.eps, out=self.inv)  # (k, 1, h)
        sqrt(self.inv, out=self.inv)
        divide(self.one, self.inv, out=self.inv)
        multiply(self.inv, self.gamma, out=self.slope)
        multiply(self.centred, self.slope, out=self.y)  # (k, b, h)
        add(self.y, self.beta, out=self.y)

    def backward(self, dy: Array) -> Array:
        # With c = x - mean and i = 1 / sqrt(var + eps):  dx = gamma i (dy - mean(dy) - c i mean(dy c i))
        multiply(dy, self.centred, out=self.work)  # (k, b, h)
        matmul(self.ones, self.work, out=self.dgamma)  # (k, 1, h)
        multiply(self.dgamma, self.inv, out=self.dgamma)
        matmul(self.ones, dy, out=self.dbeta)  # (k, 1, h)
        multiply(self.dboth, self.share, out=self.means)  # (k, 2, h)
        multiply(self.mean_dgamma, self.inv, out=self.pull)  # (k, 1, h)
        multiply(self.centred, self.pull, out=self.work)  # (k, b, h)
        subtract(dy, self.work, out=dy)
        subtract(dy, self.mean_dbeta, out=dy)
        multiply(dy, self.slope, out=dy)
        return dy

    def infer(self, x: Array) -> Array:
        subtract(x, self.running[0], out=self.centred)  # (k, b, h)
        self.var[...] = self.running[1]
        self._normalise()
        return self.y
