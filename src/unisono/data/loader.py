"""Loader: from a step and a range of shards to arrays with a leading shard axis.

The one idea: shards of the usual size are stacked and given to the model in one call; the smaller one at the ragged end
of an epoch comes alone, in its own shape. The arrays are the loader's and are filled anew by every call.

    for group in Loader(plan, x, y).groups(order, step, range(0, 4)): model.loss_and_grad(group.x, group.y, ...)
"""

from typing import NamedTuple, final

import numpy as np

from unisono.data.shards import Plan


@final
class Group(NamedTuple):
    """Consecutive shards of one size, from number `first` on: x (k, b, features), y (k, b) or (k, b, outputs)."""

    first: int
    x: np.ndarray
    y: np.ndarray


@final
class Loader:
    """Rows of `x` (n, features) and `y` (n,) or (n, outputs), dealt by `plan`."""

    def __init__(self, plan: Plan, x: np.ndarray, y: np.ndarray) -> None:
        self._plan, self._x, self._y = plan, x, y
        self._rooms: dict[tuple[int, int], tuple[np.ndarray, ...]] = {}

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
        x, y, flat_x, flat_y = self._room(len(shards), size)
        # "clip" saves NumPy the copy it makes lest an index be wrong: the order is a permutation.
        self._x.take(rows, 0, flat_x, "clip")
        self._y.take(rows, 0, flat_y, "clip")
        return Group(shards.start, x, y)

    def _room(self, count: int, size: int) -> tuple[np.ndarray, ...]:
        """(x, y, and both as plain rows), made once for each shape."""
        if (count, size) not in self._rooms:
            x = np.empty((count, size, *self._x.shape[1:]), self._x.dtype)
            y = np.empty((count, size, *self._y.shape[1:]), self._y.dtype)
            flat_x, flat_y = x.reshape(-1, *self._x.shape[1:]), y.reshape(-1, *self._y.shape[1:])
            self._rooms[count, size] = x, y, flat_x, flat_y
        return self._rooms[count, size]
