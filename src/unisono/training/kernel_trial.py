"""Kernel trial: whether the processor computes the shards of this run with the same bits on any number of ranks.

The one idea: the promise at the start of a run is tried before it is made, with the network and the samples of the run
(`models/kernel_check.py`), in a process of its own: to compute gradients may start threads, take memory, and have
effects of the user's code that the run must not meet.

    kernel_dependences(job)                    # [] or ["the position in a group of 2"]

Limits: with one thread, and with fewer samples a shard where a whole one would take longer than `BUDGET_S`. Where that
is not enough, or memory is short, nothing is tried; nor for ranks of other launchers, which cannot fork. `unisono
doctor` tries more, with networks of its own.
"""

import signal
import time
from dataclasses import replace

import numpy as np
from threadpoolctl import threadpool_limits

from unisono import aligned
from unisono.data.loader import Loader
from unisono.errors import UnisonoError
from unisono.launch.local import run
from unisono.models.base import Array, Model
from unisono.models.kernel_check import QUICK, dependences
from unisono.resources import available_bytes
from unisono.rng import generator
from unisono.training.job import Job

BUDGET_S = 0.05
"""For a shard; about ten are computed."""
LIMIT_S = 2.0
"""For all; then the trial is given up."""
_FEW = 2
"""Samples that show how long a shard takes; batch norm needs two."""
_VECTORS = 16
"""Of the length of the parameters that a trial takes, at most."""


def kernel_dependences(job: Job) -> list[str]:
    """What the bits of a shard depend on here, besides the shard itself; [] also where nothing is promised anyway."""
    if not job.spec.supports.any_ranks:
        return []
    try:
        (found,) = run(lambda world: _try_limited(job), 1, start="fork")
    except UnisonoError:  # given up, or a mistake in the user's module, which the run will meet and tell better
        return []
    return list(found)


def _try_limited(job: Job) -> list[str]:
    """In a process of its own, which ends when it takes too long."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    with threadpool_limits(1, user_api="blas"), np.errstate(all="ignore"):
        return try_kernels(job)


def try_kernels(job: Job) -> list[str]:
    """In this process."""
    plan, data = job.plan, job.dataset
    model = replace(job, recipe=job.recipe.with_options(sync_batchnorm=False, threads=1)).model()
    if 4 * model.layout.length * _VECTORS > available_bytes() // 2:
        return []
    shards = range(min(2, plan.batch_samples(0) // plan.shard_size) or 1)
    (group, *_) = Loader(plan, data.train_x, data.train_y).groups(plan.order(0), 0, shards)
    size = _affordable(model, group.x, group.y)
    if not size:
        return []
    x, y = group.x[:, :size], group.y[:, :size]
    larger = np.concatenate([x[:1], x[:1, :1]], 1), np.concatenate([y[:1], y[:1, :1]], 1)
    return dependences(model, x, y, larger, QUICK)


def _affordable(model: Model, x: Array, y: Array) -> int:
    """How many samples of a shard take at most `BUDGET_S`; 0: not even a few."""
    size = int(x.shape[1])
    few = min(size, _FEW)
    params, buffers = aligned.zeros(model.layout.length), aligned.zeros(model.buffers_layout.length)
    model.init(params, buffers, generator(0, "init"))
    model.bind(params, buffers)
    grads = aligned.zeros((1, model.layout.length))
    took_s = 0.0
    for _ in range(2):  # the first call makes the model's own arrays
        begun = time.perf_counter()
        model.loss_and_grad(x[:1, :few], y[:1, :few], grads, 1.0, lambda shard: generator(0, "dropout", 0))
        took_s = time.perf_counter() - begun
    if took_s > BUDGET_S:
        return 0
    return min(size, max(few, int(few * BUDGET_S / took_s)))
