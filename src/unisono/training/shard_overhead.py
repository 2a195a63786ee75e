"""What shards cost: how many times longer a rank computes because its share of a batch is cut into shards.

The one idea: measure it on the very arrays that a rank trains on, k shards of b samples against one shard of k * b, in
turn, so that a machine that slows down slows both; the medians are compared.

    price = shard_overhead(model, x, y)        # x (k, b, features), y (k, b) or (k, b, outputs); 1.0 = free

About 50 ms in all, and at least two calls of each kind, however long they take. The model is bound to its parameters
before; neither these nor its buffers change. Limits: computing alone is timed, not the sum over shards, the update or
the waiting; on a busy machine the figure is good to ten percent, no better, so tell it only where it is large. The
model keeps its memory for the uncut share afterwards. Ranks that measure at the same time get in each other's way as
they do in training: let all of them measure, and take the middle one.
"""

import time
from statistics import median

import numpy as np

from unisono import aligned
from unisono.models.base import Array, Model

BUDGET_S = 0.05


def shard_overhead(model: Model, x: Array, y: Array) -> float:
    """How many times longer the gradients of k shards take than those of one shard with all their samples."""
    k, b = x.shape[:2]
    if k == 1:
        return 1.0
    scale = 1.0 / (k * b)
    rows = aligned.empty((k, model.layout.length))
    cut = (x, y, rows)
    joined_x, joined_y = (aligned.as_stack(a.reshape(1, k * b, *a.shape[2:]), a.dtype) for a in (x, y))
    whole = (joined_x, joined_y, rows[:1])
    draws = np.random.default_rng(0)
    took: tuple[list[float], list[float]] = ([], [])
    begun = time.perf_counter()
    for call in (cut, whole):  # the first call of a shape makes the model's own arrays
        model.loss_and_grad(*call, scale, lambda shard: draws)
    while not took[0] or time.perf_counter() < begun + BUDGET_S:
        for call, times in zip((cut, whole), took, strict=True):
            start = time.perf_counter()
            model.loss_and_grad(*call, scale, lambda shard: draws)
            times.append(time.perf_counter() - start)
    return median(took[0]) / median(took[1])
