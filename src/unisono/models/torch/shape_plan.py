"""ShapePlan: what calls of one shape have in common, so that a call in the middle of a run makes nothing anew.

The one idea: loaders and strategies hand over the same arrays at every step, so the tensors that are views of them, one
a shard, are kept for as long as the arrays are the same objects. Every shard begins on a 64-byte border (`aligned.py`):
arrays that are not like that are copied first.

    plan = ShapePlan(task, shards=4, buffers=66, parameters=6); plan.read(x, y); plan.bind_grads(grads, vectors)

Limits: the memory of every shape is kept; a run has few (the usual one, the ragged end, evaluation).
"""

from typing import final

import numpy as np
import torch
from torch import Tensor

from unisono import aligned
from unisono.models.base import Array, ShardSums
from unisono.models.torch.flat_views import FlatViews
from unisono.models.torch.task import Task

MOST_AIMS = 64
"""Arrays of gradients whose views are kept: shards that are computed one by one have one each, in turn."""


@final
class ShapePlan:
    """What calls of one shape share: the sums, and views of the arrays they are given, kept while they are the same."""

    def __init__(self, task: Task, shards: int, buffers: int, parameters: int) -> None:
        self._task = task
        self.loss_sum, self.correct = np.zeros((2, shards))
        self.new_buffers = aligned.stack(shards, (buffers,))
        self.used = np.ones((shards, parameters), np.bool_)
        self.complete = ShardSums(self.loss_sum, self.correct, self.new_buffers)
        self.partial = ShardSums(self.loss_sum, self.correct, self.new_buffers, self.used)
        self.evaluated = ShardSums(self.loss_sum, self.correct, self.new_buffers[:, :0])
        self._x: Array | None = None
        self._y: Array | None = None
        self.grads: Array | None = None
        self.weights: dict[float, Tensor] = {}
        """By scale: what a term of the loss weighs in the mean of a batch; batches have one or two sizes."""
        self.samples: list[Tensor] = []
        self.labels: list[Tensor] = []
        self.rows: list[list[Tensor]] = []
        self._aims: dict[tuple[int, tuple[int, ...]], list[list[Tensor]]] = {}

    def read(self, x: Array, y: Array) -> None:
        """x (k, b, features) and y as tensors, one a shard; loaders fill the same arrays again and again."""
        if x is not self._x:
            stack = _writable_stack(x, np.dtype(np.int64 if self._task.tokens else np.float32))
            self.samples = [self._task.samples(torch.from_numpy(shard)) for shard in stack]  # (b, *input_shape) each
            self._x = x if stack is x else None
        if y is not self._y:
            stack = _writable_stack(y, np.dtype(np.int64 if self._task.classifies else np.float32))
            self.labels = [torch.from_numpy(shard) for shard in stack]
            self._y = y if stack is y else None

    def bind_grads(self, grads: Array, vectors: FlatViews) -> None:
        """Gradients go into `grads` (k, length or more) from now on."""
        if len(grads) != len(self.loss_sum):
            raise ValueError(f"grads has {len(grads)} rows for {len(self.loss_sum)} shards")
        key = grads.ctypes.data, grads.strides  # views of it keep its memory, so no other array comes to lie there
        if key not in self._aims:
            rows = [vectors.layout.views(row[: vectors.layout.length]) for row in grads]
            if len(self._aims) == MOST_AIMS:
                self._aims.clear()
            self._aims[key] = [[torch.from_numpy(view) for view in views.values()] for views in rows]
        self.rows, self.grads = self._aims[key], grads


def _writable_stack(array: Array, dtype: np.dtype) -> Array:
    """Without a copy where it can be: torch warns of memory that it must not write, and modules might write to it."""
    if array.flags.writeable:
        return aligned.as_stack(array, dtype)
    copy = aligned.stack(len(array), array.shape[1:], dtype)
    copy[...] = array
    return copy
