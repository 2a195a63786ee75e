"""TorchModel: any `torch.nn.Module` behind the interface of our models; each shard is a forward and a backward.

The one idea: the module is torch's, its memory is ours. Its parameters are views of the bound vector, which is updated
in place; a shard's gradients are copied to its row; buffers and random numbers are the shard's own.

    model = TorchModel(lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 10)), Task((28, 28), outputs=10))
    model.bind(params, buffers); sums = model.loss_and_grad(x, y, grads, scale=1 / 256, noise=noise)

Shards are computed one after the other, each alone, so its bits do not depend on its neighbours. With synchronised
batch norm they are computed together (`concurrent_shards.py`), still one at a time.

Limits: torch's threads are this process's: one until `bind`, for a process that has started some cannot fork ranks;
then as many as asked for. A shard of one sample is too small for torch's batch norm, unless that is synchronised.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from unisono.errors import UserError
from unisono.models.base import Array, Exchange, Model, Noise, Part, ShardSums
from unisono.models.torch.checks import GraphCheck, check, explained, is_single_sample_batchnorm
from unisono.models.torch.concurrent_shards import ConcurrentShards, ShardState
from unisono.models.torch.dry_run import dry_run
from unisono.models.torch.flat_views import FlatViews, ShapePlan
from unisono.models.torch.learning_task import Task
from unisono.models.torch.precision import Precision, find
from unisono.models.torch.random_state import ALL, NAMES, TORCH, drawn_since, generator_states, seed_from, seeded


@final
class TorchModel(Model):
    """`make` builds the module anew whenever it is called: once here, once for the starting values (`init`)."""

    def __init__(
        self,
        make: Callable[[], nn.Module],
        task: Task,
        precision: str = "fp32",
        threads: int = 1,
        sync_batchnorm: bool = False,
    ) -> None:
        self._make, self._task, self._precision, self._threads = make, task, find(precision), threads
        torch.set_num_threads(1)
        with seeded(0):
            self.module = _made(make)
            self._together = ConcurrentShards(self.module, precision) if sync_batchnorm else None
            habits = dry_run(self.module, task, self._precision, self._made_again)
        self._draws, self._watched = habits.draws, ALL
        self._before: dict[str, Any] = {}
        equal = set() if self._together is None else self._together.equal
        # The mean of equal numbers need not be that number: those are taken from shard 0.
        self._vectors = FlatViews(self.module, habits.changed - equal)
        self.exchange_width = 0 if self._together is None else self._together.width
        self._params = tuple(self._vectors.trained.values())
        self.layout, self.buffers_layout = self._vectors.layout, self._vectors.buffers_layout
        self.unaveraged, self.fixed = self._vectors.unaveraged, self._vectors.fixed
        self.state_names = self._vectors.state_names
        self.classifies, self.may_skip_params = task.classifies, True
        self._watch = GraphCheck(len(self._params))
        self._plans: dict[tuple[int, ...], ShapePlan] = {}
        self._shard_states: dict[tuple[int, ...], list[ShardState]] = {}

    def _made_again(self) -> nn.Module:
        module = _made(self._make)
        if self._together is not None:
            self._together.include(module)
        return module

    def wrap_precision(self, wrap: Callable[[Precision], Precision]) -> None:
        """From now on forward and backward are those of what `wrap` makes of the one that does them."""
        self._precision = wrap(self._precision)

    def init(self, params: Array, buffers: Array, rng: np.random.Generator) -> None:
        with seeded(rng):
            self._vectors.write(_made(self._make), params, buffers)

    def bind(self, params: Array, buffers: Array) -> None:
        torch.set_num_threads(self._threads)
        self._vectors.point(params, buffers)
        self._frozen = buffers[self._vectors.width : self.buffers_layout.length]
        self._plans.clear()
        self._shard_states.clear()

    def named(self, params: Array, buffers: Array) -> tuple[dict[str, Array], dict[str, Array]]:
        return self._vectors.named(params, buffers)

    def loss_and_grad(self, x: Array, y: Array, grads: Array, scale: float, noise: Noise | None = None) -> ShardSums:
        if self._together is not None:
            return self.loss_and_grad_together([Part(x, y, grads, noise)], scale)[0]
        plan = self._prepare(x, y, grads, noise)
        # Seeding takes a good part of the time of a small shard, so generators that the module was never seen to draw
        # from are only watched: all of them once, with samples that are not made up, then torch's.
        watched = self._watched - self._draws if noise is not None else frozenset()
        before = generator_states(watched)
        sums = self._compute(plan, scale, noise if self._draws else None)
        if watched and (drawn := drawn_since(before)):
            self._draws |= drawn
            sums = self._compute(plan, scale, noise)
        self._watched = TORCH
        return sums

    def loss_and_grad_together(
        self, parts: Sequence[Part], scale: float, exchange: Exchange | None = None
    ) -> list[ShardSums]:
        if self._together is None:
            return super().loss_and_grad_together(parts, scale, exchange)
        plans, works, shard_states, rows = [], [], [], []
        for part in parts:
            plan = self._prepare(part.x, part.y, part.grads, part.noise)
            plan.used.fill(True)
            weight = self._weight(plan, scale)
            plans.append(plan)
            # Seeded whether or not the module is known to draw: to find out later would mean to exchange all again.
            for shard, shard_state in enumerate(self._shard_states[part.x.shape]):
                works.append(partial(self._compute_shard, plan, shard, weight, part.noise, shard_state))
                shard_states.append(shard_state)
                rows.append(plan.new_buffers[shard, : self._vectors.width])
        self._together.run(works, shard_states, exchange)
        for shard_state, row in zip(shard_states, rows, strict=True):
            shard_state.back()
            self._vectors.leave(row)
        return [plan.complete if plan.used.all() else plan.partial for plan in plans]

    @property
    def exchange_s(self) -> float:
        return 0.0 if self._together is None else self._together.spent_s

    def _weight(self, plan: ShapePlan, scale: float) -> Tensor:
        if scale not in plan.weights:
            plan.weights[scale] = torch.tensor(scale / self._task.terms)
        return plan.weights[scale]

    def _prepare(self, x: Array, y: Array, grads: Array, noise: Noise | None) -> ShapePlan:
        self._turn(training=True)
        plan = self._plans.get(x.shape) or self._open(x.shape)
        plan.read(x, y)
        if grads is not plan.grads:
            plan.bind_grads(grads, self._vectors)
        if self._draws and noise is None:
            raise TypeError("this module draws random numbers: loss_and_grad needs noise")
        return plan

    def _compute(self, plan: ShapePlan, scale: float, noise: Noise | None) -> ShardSums:
        weight = self._weight(plan, scale)
        plan.used.fill(True)
        complete = True
        for shard in range(len(plan.samples)):
            complete &= self._compute_shard(plan, shard, weight, noise)
            self._vectors.leave(plan.new_buffers[shard, : self._vectors.width])
        return plan.complete if complete else plan.partial

    def _compute_shard(
        self, plan: ShapePlan, shard: int, weight: Tensor, noise: Noise | None, shard_state: ShardState | None = None
    ) -> bool:
        """One forward and backward, with the buffers on `shard_state`; whether the loss depends on every parameter."""
        complete, label = True, plan.labels[shard]
        self._vectors.enter()
        if shard_state is not None:
            shard_state.begin()
        if noise is not None:
            seed_from(noise(shard), self._draws if shard_state is None else self._draws | TORCH)
        z = self._forward(plan.samples[shard])
        loss = self._task.loss(z, label)
        try:
            found = self._precision.gradients(loss, self._params, weight)
        except RuntimeError as error:
            raise explained(error) from None
        for number, (place, gradient) in enumerate(zip(plan.rows[shard], found, strict=True)):
            if gradient is not None:
                place.copy_(gradient.to_dense() if gradient.is_sparse else gradient)
            else:
                place.zero_()
                complete = plan.used[shard, number] = False
        if not complete:
            self._watch.check(loss, ~plan.used[shard])
        plan.loss_sum[shard] = loss.item() / self._task.terms
        plan.correct[shard] = self._task.correct(z, label)
        if shard_state is not None:
            shard_state.keep()
        return complete

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
            if len(sample) > 1 or not is_single_sample_batchnorm(error):
                raise
            raise UserError(
                f"batch norm cannot train on a shard of one sample: {error}",
                hint="leave out the ragged end with --drop-last, choose --batch-size and --shards so that none is 1, "
                "or use --sync-batchnorm",
            ) from None

    def _turn(self, *, training: bool) -> None:
        if self.module.training == training and (self._before or not training):
            return
        self.module.train(training)
        self.check_reproducible()
        self._before = generator_states(ALL - TORCH) if training else {}

    def check_reproducible(self) -> None:
        late = drawn_since({kind: place for kind, place in self._before.items() if kind not in self._draws})
        self._before = {}  # what is drawn before the next step is nobody's fault
        if late:
            whose = " and ".join(sorted(NAMES[kind] for kind in late))
            raise UserError(
                f"the module has begun to draw from the generator of {whose} after its first samples, when it was seen "
                "not to: those draws were not seeded, so other ranks would draw others",
                hint="draw from torch's (torch.rand), or in every forward of training, from the first on",
            )

    def _open(self, shape: tuple[int, ...]) -> ShapePlan:
        if 0 in shape:
            raise UserError(f"samples of shape {shape}: there are none", hint="leave out empty shards")
        plan = ShapePlan(self._task, shape[0], self.buffers_layout.length, len(self._params))
        plan.new_buffers[:, self._vectors.width :] = self._frozen
        self._plans[shape] = plan
        if self._together is not None:
            self._vectors.enter()
            self._shard_states[shape] = [ShardState(self.module, self._draws | TORCH) for _ in range(shape[0])]
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
