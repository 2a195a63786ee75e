"""What a precision of 16 bits would bring on this machine: measured before a run, said if it is not what one hopes for.

The one idea: compute one shard of the run's own data in float32 and in the precision asked for, in turn, and compare
times and bits. A processor without the instructions computes 16 bits by way of 32, several times slower; and a network
without products (or torch's choice of operations) may come out bit for bit as in float32.

    for note in precision_notes(job): print(note)

Limits: one shard, on one thread, for about a quarter of a second; the ratio is good to a fifth or so.
"""

import time
from dataclasses import replace
from statistics import median

import numpy as np

from unisono import aligned
from unisono.data.loader import Loader
from unisono.rng import generator
from unisono.training.fingerprint import cpu_flags
from unisono.training.job import Job

INSTRUCTIONS = {
    "bf16": ("avx512_bf16", "amx_bf16", "bf16"),
    "fp16": ("avx512_fp16", "amx_fp16", "fphp", "asimdhp"),
}
"""Flags of processors that multiply such numbers themselves; any of them will do."""
BUDGET_S = 0.25
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
        # One thread: whoever asks may be about to fork ranks, which a process with threads of torch's cannot.
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
    while len(took[0]) < 2 or time.perf_counter() < begun + BUDGET_S:
        for model, row, times in zip(models, grads, took, strict=True):
            start = time.perf_counter()
            model.loss_and_grad(group.x, group.y, row, 1.0, lambda shard: generator(0, "dropout", 0))
            times.append(time.perf_counter() - start)
    # The first call of each makes its memory.
    return median(took[0][1:]) / median(took[1][1:]), bool(np.array_equal(grads[0], grads[1]))
