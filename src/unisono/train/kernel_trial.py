"""Kernel trial: whether the processor computes the shards of this run with the same bits on any number of ranks.

The one idea: the promise at the start of a run is tried before it is made, with the network and the samples of the run
(`models/kernel_check.py`).

    kernel_dependences(job)                    # [] or ["the position in a group of 2"]

Limits: with one thread, and with fewer samples a shard where a whole one would take longer than `BUDGET_S`.
`unisono doctor` tries more, with networks of its own.
"""

import time
from dataclasses import replace

import numpy as np

from unisono import aligned
from unisono.data.loader import Loader
from unisono.models.base import Array, Model
from unisono.models.kernel_check import QUICK, dependences
from unisono.rng import generator
from unisono.train.job import Job

BUDGET_S = 0.1
"""For a shard; about ten are computed."""
_FEW = 2
"""Samples that show how long a shard takes; batch norm needs two."""


def kernel_dependences(job: Job) -> list[str]:
    """What the bits of a shard depend on here, besides the shard itself; [] where nothing is promised anyway."""
    recipe = job.recipe
    if recipe.strategy not in ("sync", "local") or recipe.allreduce != "arena":
        return []
    shards = range(min(2, job.plan.batch_samples(0) // job.plan.shard_size) or 1)
    # One thread: the caller may be about to fork ranks, which a process with threads of torch's cannot.
    alone = replace(job, recipe=replace(recipe, sync_batchnorm=False, threads=1))
    try:
        with np.errstate(all="ignore"):
            model = alone.model()
            plan, data = job.plan, job.dataset
            (group, *_) = Loader(plan, data.train_x, data.train_y).groups(plan.order(0), 0, shards)
            size = _affordable(model, group.x, group.y)
            x, y = group.x[:, :size], group.y[:, :size]
            larger = np.concatenate([x[:1], x[:1, :1]], 1), np.concatenate([y[:1], y[:1, :1]], 1)
            return dependences(model, x, y, larger, QUICK)
    except Exception:  # a mistake in the user's module, say: the run will meet it, too, and says it better
        return []


def _affordable(model: Model, x: Array, y: Array) -> int:
    """How many samples of a shard take at most `BUDGET_S`."""
    size = int(x.shape[1])
    if size <= _FEW:
        return size
    params, buffers = aligned.zeros(model.layout.length), aligned.zeros(model.buffers_layout.length)
    model.init(params, buffers, generator(0, "init"))
    model.bind(params, buffers)
    grads = aligned.zeros((1, model.layout.length))
    took_s = 0.0
    for _ in range(2):  # the first call makes the model's own arrays
        begun = time.perf_counter()
        model.loss_and_grad(x[:1, :_FEW], y[:1, :_FEW], grads, 1.0, lambda shard: generator(0, "dropout", 0))
        took_s = time.perf_counter() - begun
    return min(size, max(_FEW, int(_FEW * BUDGET_S / took_s)))
