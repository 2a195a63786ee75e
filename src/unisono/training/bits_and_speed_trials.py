"""Trials of this machine with the network and samples of a run: bits of kernels, speed of 16 bits, cost of shards.

    kernel_dependences(job)                    # [] or ["the position in a group of 2"]
    for note in precision_notes(job): print(note)
    shard_overhead(model, x, y)                # x (k, b, features), y (k, b) or (k, b, outputs); 1.0 = free

`kernel_dependences`: whether the processor computes the shards of this run with the same bits on any number of ranks.
The promise at the start of a run is tried before it is made (`models/kernel_check.py`), in a process of its own,
because computing gradients may start threads, take memory, and have effects of the user's code that the run must not
meet. Limits: one thread, and fewer samples a shard where a whole one would take longer than `SHARD_S`; nothing is tried
where that is not enough or memory is short, nor for ranks of other launchers, which cannot fork. `unisono doctor` tries
more, with networks of its own.

`precision_notes`: what a precision of 16 bits brings here. One shard is computed in float32 and in the requested
precision, in turn; times and bits are compared. A processor without the instructions emulates 16 bits by 32, several
times slower; and a network without products (or torch's choice of operations) may have the same bits as in float32.
Limits: one shard, on one thread, for about a quarter of a second; the ratio is good to a fifth or so.

`shard_overhead`: how many times longer a rank computes because its share of a batch is cut into shards. k shards of b
samples are timed against one shard of k * b, in turn, so that a slower moment slows both; medians are compared. It
takes about 50 ms, and at least two calls of each kind. The model is bound to its parameters before; neither these nor
its buffers change. Limits: only computing is timed; on a busy machine the figure is good to ten percent, so report it
only where it is large. The model keeps its memory for the uncut share afterwards. Ranks that measure at the same time
disturb each other as they do in training: let all of them measure, and take the median.
"""

import signal
import time
from dataclasses import replace
from statistics import median

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
from unisono.training.fingerprint import cpu_flags
from unisono.training.job import Job

SHARD_S = 0.05
"""The time for a shard; about ten are computed."""
TRIAL_LIMIT_S = 2.0
"""The time for all; then the trial is given up."""
_FEW = 2
"""Samples that show how long a shard takes; batch norm needs two."""
_VECTORS = 16
"""How many vectors as long as the parameters a trial takes, at most."""


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
    signal.setitimer(signal.ITIMER_REAL, TRIAL_LIMIT_S)
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
    """How many samples of a shard take at most `SHARD_S`; 0: not even a few."""
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
    if took_s > SHARD_S:
        return 0
    return min(size, max(few, int(few * SHARD_S / took_s)))


INSTRUCTIONS = {
    "bf16": ("avx512_bf16", "amx_bf16", "bf16"),
    "fp16": ("avx512_fp16", "amx_fp16", "fphp", "asimdhp"),
}
"""Flags of processors that multiply such numbers themselves; any of them will do."""
PRECISION_S = 0.25
FELT = 1.1


def precision_notes(job: Job) -> list[str]:
    """What to tell the user before the run starts; nothing in float32, or where 16 bits are what they should be."""
    name = job.recipe.model.precision
    if name not in INSTRUCTIONS or job.recipe.strategy.device == "cuda":
        return []
    notes = []
    slower, same = _compare(job)
    if same:
        notes.append(f"Note: --precision {name} changes nothing here: the bits are those of fp32.")
    able = cpu_flags() & set(INSTRUCTIONS[name])
    if not able and slower > FELT:
        notes.append(
            f"Warning: this processor has no instructions for {name}: a shard takes {slower:.1f} times as long as in "
            "fp32 (measured).\nHINT: use --precision fp32, or a processor with "
            f"{' or '.join(INSTRUCTIONS[name][:2])}"
        )
    return notes


def _compare(job: Job) -> tuple[float, bool]:
    """(how many times longer a shard takes than in fp32, whether its gradients have the same bits)."""
    plan, data = job.plan, job.dataset
    (group, *_) = Loader(plan, data.train_x, data.train_y).groups(plan.order(0), 0, range(1))
    models, grads = [], []
    for precision in (job.recipe.model.precision, "fp32"):
        # One thread: the caller may be about to fork ranks, which a process with torch's threads cannot.
        recipe = job.recipe.with_options(precision=precision, sync_batchnorm=False, threads=1)
        model = replace(job, recipe=recipe).model()
        params = aligned.zeros(model.layout.length)
        buffers = aligned.zeros(model.buffers_layout.length)
        model.init(params, buffers, generator(job.recipe.learning.seed, "init"))
        model.bind(params, buffers)
        models.append(model)
        grads.append(aligned.zeros((1, model.layout.length)))
    took: tuple[list[float], list[float]] = ([], [])
    begun = time.perf_counter()
    while len(took[0]) < 2 or time.perf_counter() < begun + PRECISION_S:
        for model, row, times in zip(models, grads, took, strict=True):
            start = time.perf_counter()
            model.loss_and_grad(group.x, group.y, row, 1.0, lambda shard: generator(0, "dropout", 0))
            times.append(time.perf_counter() - start)
    # The first call of each makes its memory.
    return median(took[0][1:]) / median(took[1][1:]), bool(np.array_equal(grads[0], grads[1]))


OVERHEAD_S = 0.05


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
    while not took[0] or time.perf_counter() < begun + OVERHEAD_S:
        for call, times in zip((cut, whole), took, strict=True):
            start = time.perf_counter()
            model.loss_and_grad(*call, scale, lambda shard: draws)
            times.append(time.perf_counter() - start)
    return median(took[0]) / median(took[1])
