"""Loader: from a step and a range of shards to arrays with a leading shard axis.

The one idea: shards of the usual size are stacked and given to the model in one call; the smaller one at the ragged end
of an epoch comes alone, in its own shape. The arrays are the loader's and are filled anew by every call. Each shard
begins on a 64-byte border (`aligned.py`), so kernels see the same address modulo 64 whichever rank has which shards.

    for group in Loader(plan, x, y).groups(order, step, range(0, 4)): model.loss_and_grad(group.x, group.y, ...)
"""

from itertools import accumulate
from typing import NamedTuple, final

import numpy as np

from unisono import aligned
from unisono.data.shards import ShardPlan


@final
class Group(NamedTuple):
    """Consecutive shards of one size, from number `first` on: x (k, b, features), y (k, b) or (k, b, outputs)."""

    first: int
    x: np.ndarray
    y: np.ndarray


@final
class Loader:
    """Rows of `x` (n, features) and `y` (n,) or (n, outputs), dealt by `plan`."""

    def __init__(self, plan: ShardPlan, x: np.ndarray, y: np.ndarray) -> None:
        self._plan, self._x, self._y = plan, x, y
        self._rooms: dict[tuple[int, int], tuple[_Room, _Room]] = {}

    def groups(self, order: np.ndarray, step: int, shards: range) -> list[Group]:
        """The samples of `shards`, none of which is empty: the full ones together, a smaller last one by itself."""
        usual = self._plan.shard_size
        full = range(shards.start, min(shards.stop, self._plan.batch_samples(step) // usual))
        found = [self._gather(order, step, full, usual)] if full else []
        for shard in range(max(full.stop, shards.start), shards.stop):
            rest = range(shard, shard + 1)
            found.append(self._gather(order, step, rest, self._plan.shard_samples(step, shard)))
        return found

    def _gather(self, order: np.ndarray, step: int, shards: range, size: int) -> Group:
        start = step * self._plan.global_batch + shards.start * self._plan.shard_size
        rows = order[start : start + len(shards) * size]
        x, y = self._room(len(shards), size)
        x.fill(self._x, rows)
        y.fill(self._y, rows)
        return Group(shards.start, x.stack, y.stack)

    def _room(self, count: int, size: int) -> tuple["_Room", "_Room"]:
        """For x and y, made once for each shape."""
        if (count, size) not in self._rooms:
            self._rooms[count, size] = _Room(count, size, self._x), _Room(count, size, self._y)
        return self._rooms[count, size]


@final
class _Room:
    """Memory for `count` shards of `size` rows of `whole` each."""

    def __init__(self, count: int, size: int, whole: np.ndarray) -> None:
        self.stack = aligned.stack(count, (size, *whole.shape[1:]), whole.dtype)
        # In one go where no gaps lie between the shards.
        joined = self.stack.flags.c_contiguous
        parts = [self.stack.reshape(-1, *whole.shape[1:])] if joined else list(self.stack)
        starts = accumulate((len(part) for part in parts), initial=0)
        self._parts = [(slice(start, start + len(part)), part) for start, part in zip(starts, parts, strict=False)]

    def fill(self, whole: np.ndarray, rows: np.ndarray) -> None:
        for where, part in self._parts:
            # "clip" saves NumPy the copy it makes lest an index be wrong: the order is a permutation.
            whole.take(rows[where], 0, part, "clip")
