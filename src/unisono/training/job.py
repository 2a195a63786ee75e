"""Job: a recipe with its data loaded and everything derived from both, checked before any process starts.

job = prepare(Recipe.from_options(data="mnist", ranks=4)); job.plan.steps_per_epoch
"""

import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, final

import numpy as np

from unisono.comm.allreduce import ALGORITHMS
from unisono.comm.base import Communicator
from unisono.data.dataset import DataOptions, Dataset
from unisono.data.shards import ShardPlan
from unisono.data.sources import load
from unisono.errors import UserError, unknown_name
from unisono.files import expand_user
from unisono.models.base import Model
from unisono.models.engines import choose_engine
from unisono.models.nets import build
from unisono.models.wrappers import Slowed, parse_slow
from unisono.optim.learning_rate import ScheduleOptions, learning_rate, scaled
from unisono.optim.options import OptimizerOptions
from unisono.recipe import DEFAULT_SHARDS, Recipe
from unisono.strategies.arena.arena_join import NEW_START, ArenaStart
from unisono.strategies.arena.state import ArenaExtent
from unisono.strategies.base import Strategy
from unisono.strategies.local.sync_schedule import SyncSchedule
from unisono.strategies.registry import ARENA, of, resolve
from unisono.strategies.spec import StrategySpec
from unisono.training.checks import check_fits, check_samples, check_shards
from unisono.training.evaluate import blocks_of
from unisono.training.round_schedule import Interval
from unisono.user_code.function import read
from unisono.user_code.source_files import file_in, sha256_of

if TYPE_CHECKING:
    import torch

    from unisono.models.torch.learning_task import Task


@final
@dataclass(frozen=True)
class Job:
    """What every rank needs to know; forked ranks inherit it, data included."""

    recipe: Recipe
    """Resolved: shards and batch size are numbers, the engine is numpy or torch."""
    dataset: Dataset
    plan: ShardPlan
    optimizer: OptimizerOptions
    schedule: ScheduleOptions
    notes: Sequence[str] = ()
    """What the user is to be told before the run starts."""
    own_source: bytes | None = None
    """Of a network of the user's own: its file as it was then. Replacements of ranks are built from it, too, though the
    file may have been edited since."""

    def model(self) -> Model:
        """A new network."""
        recipe, data = self.recipe, self.dataset
        if recipe.model.engine == "torch":
            # Where it is used: torch takes seconds to import.
            from unisono.models.torch.build import build as build_torch

            options = recipe.model.activation, recipe.model.dropout, recipe.model.precision, recipe.ranks.threads
            return build_torch(
                recipe.model.name,
                self.task,
                *options,
                sync_batchnorm=recipe.model.sync_batchnorm,
                source=self.own_source,
            )
        return build(recipe.model.name, data.features, data.outputs, recipe.model.activation, recipe.model.dropout)

    def model_of(self, rank: int) -> Model:
        """A new network for a rank to compute with, as slow as the recipe wants it."""
        return self.slowed(self.model(), rank)

    def slowed(self, model: Model, rank: int) -> Model:
        """That network as slow as the recipe wants it for a rank."""
        factor = parse_slow(self.recipe.faults.slow, self.recipe.ranks.count).get(rank, 1.0)
        return Slowed(model, factor) if factor > 1 else model

    @cached_property
    def task(self) -> "Task":
        """What a torch module is given and must put out."""
        from unisono.models.torch.learning_task import Task

        data = self.dataset
        return Task(data.shape, data.outputs, bool(data.classes), data.tokens)

    @cached_property
    def spec(self) -> StrategySpec:
        """What the recipe's strategy declares."""
        return of(self.recipe)

    def strategy(
        self, comm: Communicator, model: Model, start: ArenaStart = NEW_START
    ) -> AbstractContextManager[Strategy]:
        """How the ranks of `comm` work together. Called by every one of them."""
        return self.spec.connect(self, comm, model, start)

    def torch_group(self, comm: Communicator) -> AbstractContextManager["torch.device"]:
        """torch's default process group for the ranks of `comm`; gives this rank's device."""
        from unisono.launch.torch_group import default_group

        return default_group(comm, self.recipe.strategy.device, self.recipe.ranks.threads)

    @cached_property
    def sync_schedule(self) -> SyncSchedule | None:
        """When replicas meet; None if there are none."""
        return self.spec.sync_schedule(self.recipe, self.plan)

    @property
    def shared_optimizer(self) -> OptimizerOptions:
        """What updates the copy of the parameters that all ranks share."""
        return self.spec.shared_optimizer(self.optimizer)

    def meetings(self, epoch: int) -> int:
        """How often ranks wait for each other in the steps of an epoch."""
        return self.updates if self.sync_schedule is None else self.sync_schedule.meetings(epoch)

    def restorable_after(self, epoch: int, step: int) -> bool:
        """Whether everything is in one place after that step (or closing round) of an epoch, to go on from."""
        return self.sync_schedule is None or step == self.plan.steps_per_epoch or self.sync_schedule.due(epoch, step)

    @cached_property
    def snapshots(self) -> Interval:
        """When to make them."""
        return Interval.parse("--snapshot-every", self.recipe.faults.snapshot_every)

    @cached_property
    def updates(self) -> int:
        """How often the parameters are updated in an epoch: steps, or pushes."""
        return self.spec.updates(self.plan)

    @property
    def batch_samples(self) -> int:
        """What is computed between two updates: a global batch, or a push."""
        return self.spec.batch_samples(self.plan)

    @property
    def blocks(self) -> int:
        """Of samples that an evaluation measures, at most."""
        return max(blocks_of(self.dataset.validation_x), blocks_of(self.dataset.test_x))

    def extent(self, *, undo: bool = False, spare: bool = False) -> ArenaExtent:
        """How much the ranks of one node have in common."""
        return self.spec.extent(self, undo=undo, spare=spare)

    @cached_property
    def code_sha256(self) -> str:
        """Of the file that a network of one's own is made in, and what it imports from beside it; empty for ours."""
        file = file_in(self.recipe.model.name)
        return sha256_of(expand_user(file), self.own_source) if file else ""

    @cached_property
    def data_sha256(self) -> str:
        """Of the training data, as the model sees them."""
        return _sha256(self.dataset.train_x, self.dataset.train_y)

    @cached_property
    def evaluation_sha256(self) -> str:
        """Of the validation and test data: early stopping depends on them."""
        data = self.dataset
        return _sha256(data.validation_x, data.validation_y, data.test_x, data.test_y)

    @property
    def all_data_sha256(self) -> str:
        """Of every part: what machines compare."""
        return hashlib.sha256(f"{self.data_sha256}{self.evaluation_sha256}".encode()).hexdigest()

    def lr(self, step: int) -> float:
        """The learning rate of a step, counted from 1 through the whole run."""
        return learning_rate(self.schedule, self._base_lr, step, self.updates, self.recipe.learning.epochs)

    @cached_property
    def _base_lr(self) -> float:
        """Before the schedule; it follows the ranks if that is wanted."""
        if not self.recipe.learning.batch_size_per_rank:
            return self.optimizer.lr
        return scaled(
            self.optimizer.lr,
            self.recipe.learning.scale_lr,
            self.plan.global_batch,
            self.recipe.learning.batch_size_per_rank,
        )


def _sha256(*arrays: np.ndarray) -> str:
    digest = hashlib.sha256(repr(tuple(array.shape for array in arrays)).encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def load_data(recipe: Recipe) -> Dataset:
    """The data that a recipe names."""
    return load(
        recipe.data.name,
        DataOptions(
            data_dir=recipe.data.directory,
            validation=recipe.data.validation,
            normalise=recipe.data.normalise,
            seed=recipe.learning.seed,
        ),
    )


def prepare(recipe: Recipe, dataset: Dataset | None = None) -> Job:
    """Checks that everything fits; a `UserError` otherwise. Loads the data, unless they are given."""
    recipe = resolve(recipe)
    spec, ways = of(recipe), [*ALGORITHMS, "native", ARENA]
    if recipe.strategy.allreduce not in ways:
        raise unknown_name("--allreduce", recipe.strategy.allreduce, ways)
    engine = choose_engine(_wanted_engine(recipe, spec), recipe.model.name, recipe.model.precision)
    dataset = load_data(recipe) if dataset is None else dataset
    samples = len(dataset.train_x)
    batch = recipe.learning.batch_size
    if recipe.learning.batch_size_per_rank:
        batch = recipe.learning.batch_size_per_rank * recipe.ranks.count
    elif recipe.learning.scale_lr != "none":
        raise UserError(
            f"--scale-lr {recipe.learning.scale_lr} without --batch-size-per-rank: the global batch does not grow",
            hint="give --batch-size-per-rank, or leave --scale-lr out",
        )
    size = samples if isinstance(batch, str) else min(batch, samples)
    shards = recipe.ranks.shards or max(recipe.ranks.count, min(DEFAULT_SHARDS, size))
    check_samples(recipe, size, samples)
    check_shards(recipe)
    parse_slow(recipe.faults.slow, recipe.ranks.count)
    optimizer = OptimizerOptions(
        recipe.learning.optimizer,
        recipe.learning.lr,
        momentum=None if recipe.learning.momentum < 0 else recipe.learning.momentum,
        weight_decay=None if recipe.learning.weight_decay < 0 else recipe.learning.weight_decay,
        clip=recipe.learning.clip or None,
    )
    schedule = ScheduleOptions(recipe.learning.schedule, recipe.learning.warmup_epochs)
    plan = ShardPlan(
        samples, "full" if isinstance(batch, str) else batch, shards, recipe.learning.seed, recipe.learning.drop_last
    )
    plan, optimizer = spec.plan_epoch(recipe, plan), spec.optimizer(optimizer)
    Interval.parse("--snapshot-every", recipe.faults.snapshot_every)
    source = read(recipe.model.name) if file_in(recipe.model.name) else None
    # Of asynchronous ranks a push is a shard, and the recipe has none to choose.
    recipe = recipe.with_options(shards=0 if spec.asynchronous else shards, engine=engine)
    job = Job(recipe, dataset, plan, optimizer, schedule, own_source=source)
    check_fits(job.recipe, dataset, job.model)
    spec.check(job)
    if engine == "torch":
        from unisono.models.torch.build import try_again

        job = replace(job, notes=try_again(recipe.model.name, job.task, source))
    _ = job.code_sha256  # now: by the first snapshot somebody may have edited the files that are run
    return job


def _wanted_engine(recipe: Recipe, spec: StrategySpec) -> str:
    """The recipe's, or what --sync-batchnorm needs."""
    if not recipe.model.sync_batchnorm:
        return recipe.model.engine
    if recipe.model.engine == "numpy":
        raise UserError("--sync-batchnorm with --engine numpy, which does not have it", hint="leave --engine out")
    if not spec.supports.sync_batchnorm:
        what = spec.chosen_by(recipe)
        raise UserError(
            f"--sync-batchnorm with {what}: shards exchange statistics through the arena", hint=f"leave {what} out"
        )
    return "torch"
