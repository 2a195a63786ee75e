"""TorchModel: any `torch.nn.Module` behind the interface of our models; each shard is a forward and a backward.

The one idea: the module is torch's, its memory is ours. Its parameters are views of the bound vector, which is updated
in place; a shard's gradients are copied to its row; buffers and random numbers are the shard's own.

    model = TorchModel(lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 10)), Task((28, 28), outputs=10))
    model.bind(params, buffers); sums = model.loss_and_grad(x, y, grads, scale=1 / 256, noise=noise)

Shards are computed one after the other, each alone, so its bits do not depend on its neighbours.

Limits: torch's threads are this process's: one until `bind`, for a process that has started some cannot fork ranks;
then as many as asked for. A shard of one sample is too small for torch's batch norm.
"""

from collections.abc import Callable
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from unisono.errors import UserError
from unisono.models.base import Array, Model, Noise, ShardSums
from unisono.models.torch.checks import check
from unisono.models.torch.plan import Plan
from unisono.models.torch.precision import find
from unisono.models.torch.seeding import seed_from, seeded
from unisono.models.torch.task import Task
from unisono.models.torch.trial import try_out
from unisono.models.torch.vectors import Vectors


@final
class TorchModel(Model):
    """`make` builds the module anew whenever it is called: once here, once for the starting values (`init`)."""

    def __init__(self, make: Callable[[], nn.Module], task: Task, precision: str = "fp32", threads: int = 1) -> None:
        self._make, self._task, self._precision, self._threads = make, task, find(precision), threads
        torch.set_num_threads(1)
        with seeded(0):
            self.module = _made(make)
            habits = try_out(self.module, task, self._precision)
        self._draws = habits.draws
        self._vectors = Vectors(self.module, habits.changed)
        self._params = tuple(self._vectors.trained.values())
        self.layout, self.buffers_layout = self._vectors.layout, self._vectors.buffers_layout
        self.taken, self.fixed = self._vectors.taken, self._vectors.fixed
        self.state_names = self._vectors.state_names
        self.classifies, self.skips = task.classifies, True
        self._plans: dict[tuple[int, ...], Plan] = {}

    def init(self, params: Array, buffers: Array, rng: np.random.Generator) -> None:
        with seeded(rng):
            self._vectors.write(_made(self._make), params, buffers)

    def bind(self, params: Array, buffers: Array) -> None:
        torch.set_num_threads(self._threads)
        self._vectors.point(params, buffers)
        self._frozen = buffers[self._vectors.width : self.buffers_layout.length]
        self._plans.clear()

    def named(self, params: Array, buffers: Array) -> tuple[dict[str, Array], dict[str, Array]]:
        return self._vectors.named(params, buffers)

    def loss_and_grad(self, x: Array, y: Array, grads: Array, scale: float, noise: Noise | None = None) -> ShardSums:
        self._turn(training=True)
        plan = self._plans.get(x.shape) or self._open(x.shape)
        plan.read(x, y)
        if grads is not plan.grads:
            plan.aim(grads, self._vectors)
        if self._draws and noise is None:
            raise TypeError("this module draws random numbers: loss_and_grad needs noise")
        # Seeding takes a good part of the time of a small shard, so modules that never draw are only watched.
        before = None if self._draws or noise is None else torch.default_generator.get_state()
        sums = self._compute(plan, scale, noise if self._draws else None)
        if before is not None and not torch.equal(before, torch.default_generator.get_state()):
            self._draws = True
            sums = self._compute(plan, scale, noise)
        return sums

    def _compute(self, plan: Plan, scale: float, noise: Noise | None) -> ShardSums:
        if scale not in plan.weights:
            plan.weights[scale] = torch.tensor(scale / self._task.terms)
        weight = plan.weights[scale]
        complete = True
        plan.used.fill(True)
        for shard, (sample, label, row) in enumerate(zip(plan.samples, plan.labels, plan.rows, strict=True)):
            self._vectors.enter()
            if noise is not None:
                seed_from(noise(shard))
            z = self._forward(sample)
            loss = self._task.loss(z, label)
            for number, (place, found) in enumerate(
                zip(row, self._precision.gradients(loss, self._params, weight), strict=True)
            ):
                if found is not None:
                    place.copy_(found)
                else:
                    place.zero_()
                    complete = plan.used[shard, number] = False
            self._vectors.leave(plan.new_buffers[shard, : self._vectors.width])
            plan.loss_sum[shard] = loss.item() / self._task.terms
            plan.correct[shard] = self._task.correct(z, label)
        return plan.complete if complete else plan.partial

    def evaluate(self, x: Array, y: Array) -> ShardSums:
        self._turn(training=False)
        plan = self._plans.get(x.shape) or self._open(x.shape)
        plan.read(x, y)
        self._vectors.enter()
        # Not inference_mode: a tensor that the module keeps for later calls would spoil the next backward.
        with torch.no_grad():
            for shard, (sample, label) in enumerate(zip(plan.samples, plan.labels, strict=True)):
                z = self._precision.forward(self.module, sample)
                plan.loss_sum[shard] = self._task.loss(z, label).item() / self._task.terms
                plan.correct[shard] = self._task.correct(z, label)
        return plan.evaluated

    def _forward(self, sample: Tensor) -> Tensor:
        try:
            return self._precision.forward(self.module, sample)
        except ValueError as error:
            if len(sample) > 1 or "more than 1 value per channel" not in str(error):
                raise
            raise UserError(
                f"batch norm cannot train on a shard of one sample: {error}",
                hint="leave out the ragged end with --drop-last, or choose --batch-size and --shards so that none is 1",
            ) from None

    def _turn(self, *, training: bool) -> None:
        if self.module.training != training:
            self.module.train(training)

    def _open(self, shape: tuple[int, ...]) -> Plan:
        if 0 in shape:
            raise UserError(f"samples of shape {shape}: there are none", hint="leave out empty shards")
        plan = Plan(self._task, shape[0], self.buffers_layout.length, len(self._params))
        plan.new_buffers[:, self._vectors.width :] = self._frozen
        self._plans[shape] = plan
        return plan


def _made(make: Callable[[], nn.Module]) -> nn.Module:
    module = make()
    if not isinstance(module, nn.Module):
        raise UserError(
            f"the factory returned {type(module).__name__}, not a torch.nn.Module",
            hint="return the module",
        )
    check(module)
    return module
