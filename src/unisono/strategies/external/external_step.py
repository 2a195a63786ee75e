"""ExternalStep: the same rounds as any strategy's, with the gradients summed by somebody else's wrapper around the
module.

The one idea: a rank's part of the global batch is one shard, one forward and one backward, and a `ModuleWrapper` does
what a user of that library would write: wrap the module, backward, clip, step. Order of samples, weights of samples,
metrics, early stop and files are the trainer's, as ever; so are the starting values and the draws of dropout.

    ExternalStep(context, model, lambda module, unused: Ddp(module, options, device, "fp32", unused=unused),
    rng).step(batch)

The wrappers average over ranks, so a rank's loss is (its sum) * ranks / (samples of the batch): the average is then the
gradient of the mean over all samples, also where the ragged end gives ranks unequal parts. A rank that gets none of it
computes the first shard's samples with weight 0, for the wrappers wait for everybody.

Limits: gradients are exchanged inside the backward, so `compute_s` holds both; `wait_s` is the exchange of losses.
Buffers are rank 0's, as DDP has it, where `sync` averages them. Other numbers of ranks give other bits; the death of a
rank ends the run; there are no snapshots.
"""

import gc
import time
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from unisono import aligned
from unisono.comm.base import Communicator
from unisono.models.torch.learning_task import Task
from unisono.models.torch.model import TorchModel
from unisono.models.torch.random_state import TORCH, seed_from
from unisono.strategies.base import Batch, StepResult
from unisono.strategies.external.module_placement import ModuleTraits, generator_of, placed, probe
from unisono.strategies.external.module_wrapper import ModuleWrapper, Wrap, explained
from unisono.strategies.messages.base import MessageStrategy


@final
@dataclass(frozen=True)
class ExternalContext:
    """Where a rank trains, and what."""

    comm: Communicator
    """For everything but gradients."""
    device: torch.device
    task: Task
    clip: float | None
    epochs: int


@final
class ExternalStep(MessageStrategy):
    """One rank's side. `model` has its starting values drawn from `rng`, which is the same on every rank."""

    def __init__(self, context: ExternalContext, model: TorchModel, wrap: Wrap, rng: np.random.Generator) -> None:
        super().__init__(context.comm, model, context.epochs)
        self._context, self._model, self._wrap = context, model, wrap
        self.start(model, rng)
        model.bind(self.params, self.buffers)
        views, states = model.named(self.params, self.buffers)
        self._homes = {name: torch.from_numpy(view) for name, view in (views | states).items()}
        self._module = placed(model, context.device, self._homes)
        self._trained = {name: p for name, p in self._module.named_parameters() if p.requires_grad}
        self._wrapped: ModuleWrapper | None = None
        self._habits = ModuleTraits(TORCH, unused=False)

    def step(self, batch: Batch) -> StepResult:
        wrapped = self._wrapped = self._wrapped or self._open(batch)
        if batch.step == 0:
            self._message_stats.begin()
        begun = time.perf_counter()
        mine = self.share(batch.live)
        x, y = self._load(batch)
        samples = len(x) if mine else 0
        loaded = time.perf_counter()
        if not self._module.training:
            self._module.train()
        if batch.noise is not None and self._habits.draws:
            seed_from(batch.noise(mine.start if mine else 0), self._habits.draws, generator_of(self._context.device))
        sums = np.zeros((batch.live, 2))
        own = self._learn(wrapped, x, y, batch, sums[mine.start] if mine else np.zeros(2))
        computed = time.perf_counter()
        self._comm.all_reduce(sums)  # one row a rank: adds zeros, exactly
        if own is not None:
            whole = own.copy()
            self._comm.all_reduce(whole)
            self._message_stats.exchange(own, whole, samples)
        exchanged = time.perf_counter()
        found = StepResult.of(sums)
        wrapped.update(batch.lr, self._context.clip)
        ended = time.perf_counter()
        spent = loaded - begun, computed - loaded, exchanged - computed, ended - exchanged
        self._message_stats.count(found, samples, spent)
        return found

    def close(self) -> None:
        """Lets go of the wrapper, and with it of torch's process group; before that is destroyed."""
        if self._wrapped is not None:
            self._wrapped.close()
        self._wrapped = None
        gc.collect()

    def _learn(self, wrapped: ModuleWrapper, x: Tensor, y: Tensor, batch: Batch, row: np.ndarray) -> np.ndarray | None:
        """Gradients of this rank's part; its sums go to `row`. For `shares`: its own part of the gradient."""
        task, given = self._context.task, bool(self.share(batch.live))
        try:
            z = wrapped.forward(x)
            loss = task.loss(z, y)
            row[:] = loss.item() / task.terms, task.correct(z.cpu(), y.cpu())
            weighted = loss * (given * self.size / (batch.samples * task.terms))
            own = self._part(weighted) if batch.shares else None
            wrapped.backward(weighted)
        except (ValueError, RuntimeError) as error:
            raise explained(error) from None
        return own

    def _part(self, weighted: Tensor) -> np.ndarray:
        """(padded length,): a backward of its own, which the wrapper does not see; once an epoch."""
        found = torch.autograd.grad(weighted, list(self._trained.values()), retain_graph=True, allow_unused=True)
        part = aligned.zeros(len(self.params))
        views = self._model.layout.views(part[: self._model.layout.length])
        for name, gradient in zip(self._trained, found, strict=True):
            if gradient is not None:
                dense = gradient.to_dense() if gradient.is_sparse else gradient
                views[name][...] = dense.cpu().numpy() / self.size
        return part

    def _keep(self) -> None:
        """Parameters and buffers, these of rank 0, go to the vectors that are evaluated and saved."""
        for name, parameter in self._trained.items():
            if parameter.data_ptr() != self._homes[name].data_ptr():  # on a device
                self._homes[name].copy_(parameter.detach())
        buffers = dict(self._module.named_buffers())
        for name, buffer in buffers.items():
            self._homes[name].copy_(buffer)
        if buffers:
            self._comm.broadcast(self.buffers)
        for name, buffer in buffers.items():
            buffer.copy_(self._homes[name])

    def _open(self, batch: Batch) -> ModuleWrapper:
        """Wraps the module as the first batch shows it to be; before the epoch's clock starts."""
        x, y = self._load(batch)
        try:
            found = probe(self._module, lambda: self._context.task.loss(self._module(x), y))
        except ValueError as error:
            raise explained(error) from None
        unused = np.array([int(found.unused)])
        self._comm.all_reduce(unused, "max")
        self._habits = ModuleTraits(found.draws, bool(unused[0]))
        return self._wrap(self._module, self._habits.unused)

    def _load(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """This rank's part of the batch (b, *input_shape), (b, ...); the first shard if it has none."""
        (group,) = batch.load(self.share(batch.live) or range(1))
        task, device = self._context.task, self._context.device
        samples = torch.from_numpy(np.ascontiguousarray(group.x[0], np.int64 if task.tokens else np.float32))
        labels = torch.from_numpy(np.ascontiguousarray(group.y[0], np.int64 if task.classifies else np.float32))
        return task.samples(samples).to(device), labels.to(device)
