"""Job: a recipe with its data loaded and everything derived from both, checked before any process starts.

job = prepare(Recipe(data="mnist", ranks=4)); job.plan.steps_per_epoch
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, final

import numpy as np

from unisono.arena.member import Member
from unisono.comm.allreduce import ALGORITHMS
from unisono.comm.base import Communicator
from unisono.data.dataset import Dataset
from unisono.data.options import DataOptions
from unisono.data.shards import Plan
from unisono.data.sources import load
from unisono.errors import UserError, unknown_name
from unisono.files import expand_user
from unisono.models.base import Model
from unisono.models.engines import choose_engine
from unisono.models.nets import build
from unisono.models.slowed import Slowed, parse_slow
from unisono.optim import make as make_optimizer
from unisono.optim.options import OptimizerOptions
from unisono.optim.schedules import ScheduleOptions, learning_rate, scaled
from unisono.own import read
from unisono.own_code import file_in, sha256_of
from unisono.recipe import DEFAULT_SHARDS, Recipe
from unisono.rng import generator
from unisono.strategies import make
from unisono.strategies.asynchronous.terms import Terms, masters_optimizer, plan_epoch
from unisono.strategies.base import Strategy
from unisono.strategies.joining import AFRESH, Start
from unisono.strategies.journeys import Journeys
from unisono.strategies.local import AVERAGING, make_local, on_arena
from unisono.strategies.nodes.away import HERE, Away
from unisono.strategies.peers import make_peer, resolve
from unisono.strategies.rhythm import Rhythm
from unisono.strategies.shared import Extent, Shared
from unisono.strategies.sync import Sync
from unisono.strategies.wire import wire_type
from unisono.train.enough import check_samples, check_shards
from unisono.train.evaluate import blocks_of
from unisono.train.every import Every
from unisono.train.fitting import check_fits

if TYPE_CHECKING:
    from unisono.models.torch.task import Task


@final
@dataclass(frozen=True)
class Job:
    """What every rank needs to know; forked ranks inherit it, data included."""

    recipe: Recipe
    """Resolved: shards and batch size are numbers, the engine is numpy or torch."""
    dataset: Dataset
    plan: Plan
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
        if recipe.engine == "torch":
            # Where it is used: torch takes seconds to import.
            from unisono.models.torch.build import build as build_torch

            options = recipe.activation, recipe.dropout, recipe.precision, recipe.threads
            return build_torch(
                recipe.model, self.task, *options, sync_batchnorm=recipe.sync_batchnorm, source=self.own_source
            )
        return build(recipe.model, data.features, data.outputs, recipe.activation, recipe.dropout)

    def model_of(self, rank: int) -> Model:
        """A new network for a rank to compute with, as slow as the recipe wants it."""
        return self.slowed(self.model(), rank)

    def slowed(self, model: Model, rank: int) -> Model:
        """That network as slow as the recipe wants it for a rank."""
        factor = parse_slow(self.recipe.slow, self.recipe.ranks).get(rank, 1.0)
        return Slowed(model, factor) if factor > 1 else model

    @cached_property
    def task(self) -> "Task":
        """What a torch module is given and must put out."""
        from unisono.models.torch.task import Task

        data = self.dataset
        return Task(data.shape, data.outputs, bool(data.classes), data.tokens)

    @contextmanager
    def strategy(self, comm: Communicator, model: Model, start: Start = AFRESH) -> Iterator[Strategy]:
        """How the ranks of `comm` work together. Called by every one of them."""
        recipe, rng = self.recipe, generator(self.recipe.seed, "init")
        extent = replace(self.extent(spare=bool(self.snapshots)), size=comm.size)
        start = replace(start, wire=wire_type(recipe.wire))
        if recipe.strategy == "sync":
            with closing(make(comm, model, self.optimizer, extent, recipe.allreduce, rng, start)) as strategy:
                yield strategy
        elif recipe.strategy == "async":
            from unisono.strategies.asynchronous.messages import AsyncMessages

            messages = AsyncMessages(comm, model, self.optimizer, self.terms(model), recipe.epochs, rng)
            if start.position or recipe.resume:  # halted in its first epoch, a run goes on after round 0
                messages.go_on(start)
            yield messages
        elif self.rhythm is not None:
            journeys = self._journeys(model, comm.rank)
            with closing(make_local(comm, journeys, self.rhythm, extent, recipe.allreduce, rng, start)) as local:
                yield local
        else:
            from unisono.launch.torch_group import default_group
            from unisono.strategies.torch_peer import Seat

            with default_group(comm, recipe.device, recipe.threads) as device:
                seat = Seat(comm, device, self.task, self.optimizer.clip, recipe.epochs)
                with closing(make_peer(recipe, seat, model, self.optimizer, rng)) as peer:
                    yield peer

    def on_arena(
        self, shared: Shared, member: Member, model: Model, on_spare: Callable[[int], None], away: Away = HERE
    ) -> Strategy:
        """The same for ranks that share an arena already, planned for `shared_optimizer` and `extent`."""
        if self.rhythm is None:
            return Sync(shared, member, model, self.optimizer, on_spare, away)
        rank = away.rank_of(member.slot)
        return on_arena(shared, member, self._journeys(model, rank), self.rhythm, on_spare, away)

    def _journeys(self, model: Model, rank: int) -> Journeys:
        return Journeys(model, self.model_of(rank), self.optimizer, wire_type(self.recipe.wire))

    @cached_property
    def rhythm(self) -> Rhythm | None:
        """When replicas meet; None if there are none."""
        recipe = self.recipe
        if recipe.strategy != "local":
            return None
        return Rhythm(self.plan, int(recipe.sync_every), recipe.local_after)

    @property
    def shared_optimizer(self) -> OptimizerOptions:
        """What updates the copy of the parameters that all ranks share."""
        return self.optimizer if self.rhythm is None else AVERAGING

    def meetings(self, epoch: int) -> int:
        """How often ranks wait for each other in the steps of an epoch."""
        return self.updates if self.rhythm is None else self.rhythm.meetings(epoch)

    def settles(self, epoch: int, step: int) -> bool:
        """Whether everything is in one place after that step (or closing round) of an epoch, to go on from."""
        return self.rhythm is None or step == self.plan.steps_per_epoch or self.rhythm.due(epoch, step)

    @cached_property
    def snapshots(self) -> Every:
        """When to make them."""
        return Every.parse("--snapshot-every", self.recipe.snapshot_every)

    def terms(self, model: Model) -> Terms:
        """What masters and workers go by, if they are asynchronous."""
        return Terms.of(self.recipe, self.updates, model.layout.sizes, self.lr)

    @cached_property
    def updates(self) -> int:
        """How often the parameters are updated in an epoch: steps, or pushes."""
        return self.plan.live(0) if self.recipe.strategy == "async" else self.plan.steps_per_epoch

    @property
    def batch_samples(self) -> int:
        """What is computed between two updates: a global batch, or a push."""
        return self.plan.shard_size if self.recipe.strategy == "async" else self.plan.global_batch

    def extent(self, *, undo: bool = False, spare: bool = False) -> Extent:
        """How much the ranks of one node have in common."""
        plan, data = self.plan, self.dataset
        lives = tuple({plan.live(0), plan.live(plan.steps_per_epoch - 1)})
        blocks = max(blocks_of(data.validation_x), blocks_of(data.test_x))
        if self.recipe.strategy == "async":  # gradients have boxes of their own
            return Extent(self.recipe.ranks, 1, (1,), self.updates, self.recipe.epochs, blocks, False, spare)
        width = self.model().exchange_width if self.recipe.sync_batchnorm else 0
        states = 0 if self.rhythm is None else len(make_optimizer(self.optimizer).state_names)
        return Extent(
            self.recipe.ranks, plan.shards, lives, plan.steps_per_epoch, self.recipe.epochs, blocks, undo, spare, width,
            states,
        )  # fmt: skip

    @cached_property
    def code_sha256(self) -> str:
        """Of the file that a network of one's own is made in, and what it imports from beside it; empty for ours."""
        file = file_in(self.recipe.model)
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
        return learning_rate(self.schedule, self._base_lr, step, self.updates, self.recipe.epochs)

    @cached_property
    def _base_lr(self) -> float:
        """Before the schedule; it follows the ranks if that is wanted."""
        if not self.recipe.batch_size_per_rank:
            return self.optimizer.lr
        return scaled(self.optimizer.lr, self.recipe.scale_lr, self.plan.global_batch, self.recipe.batch_size_per_rank)


def _sha256(*arrays: np.ndarray) -> str:
    digest = hashlib.sha256(repr(tuple(array.shape for array in arrays)).encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def load_data(recipe: Recipe) -> Dataset:
    """The data that a recipe names."""
    return load(
        recipe.data,
        DataOptions(
            data_dir=recipe.data_dir, validation=recipe.validation, normalise=recipe.normalise, seed=recipe.seed
        ),
    )


def prepare(recipe: Recipe, dataset: Dataset | None = None) -> Job:
    """Checks that everything fits; a `UserError` otherwise. Loads the data, unless they are given."""
    recipe = resolve(recipe)
    if recipe.allreduce not in (*ALGORITHMS, "native", "arena"):
        raise unknown_name("--allreduce", recipe.allreduce, [*ALGORITHMS, "native", "arena"])
    engine = choose_engine(_wanted_engine(recipe), recipe.model, recipe.precision)
    dataset = load_data(recipe) if dataset is None else dataset
    samples = len(dataset.train_x)
    batch = recipe.batch_size
    if recipe.batch_size_per_rank:
        batch = recipe.batch_size_per_rank * recipe.ranks
    elif recipe.scale_lr != "none":
        raise UserError(
            f"--scale-lr {recipe.scale_lr} without --batch-size-per-rank: the global batch does not grow",
            hint="give --batch-size-per-rank, or leave --scale-lr out",
        )
    size = samples if isinstance(batch, str) else min(batch, samples)
    shards = recipe.shards or max(recipe.ranks, min(DEFAULT_SHARDS, size))
    asynchronous = recipe.strategy == "async"
    check_samples(recipe, size, samples)
    check_shards(recipe)
    parse_slow(recipe.slow, recipe.ranks)
    optimizer = OptimizerOptions(
        recipe.optimizer,
        recipe.lr,
        momentum=None if recipe.momentum < 0 else recipe.momentum,
        weight_decay=None if recipe.weight_decay < 0 else recipe.weight_decay,
        clip=recipe.clip or None,
    )
    schedule = ScheduleOptions(recipe.schedule, recipe.warmup_epochs)
    plan = Plan(samples, "full" if isinstance(batch, str) else batch, shards, recipe.seed, recipe.drop_last)
    if asynchronous:
        plan, optimizer, shards = plan_epoch(recipe, samples), masters_optimizer(optimizer), 0
    Every.parse("--snapshot-every", recipe.snapshot_every)
    source = read(recipe.model) if file_in(recipe.model) else None
    job = Job(replace(recipe, shards=shards, engine=engine), dataset, plan, optimizer, schedule, own_source=source)
    check_fits(job.recipe, dataset, job.model)
    if asynchronous:
        job.terms(job.model())  # refuses what does not fit
    if engine == "torch":
        from unisono.models.torch.build import try_again

        job = replace(job, notes=try_again(recipe.model, job.task, source))
    _ = job.code_sha256  # now: by the first snapshot somebody may have edited the files that are run
    return job


def _wanted_engine(recipe: Recipe) -> str:
    """The recipe's, or what --sync-batchnorm needs."""
    if not recipe.sync_batchnorm:
        return recipe.engine
    if recipe.engine == "numpy":
        raise UserError("--sync-batchnorm with --engine numpy, which does not have it", hint="leave --engine out")
    if recipe.strategy != "sync" or recipe.allreduce != "arena":
        what = f"--strategy {recipe.strategy}" if recipe.strategy != "sync" else f"--allreduce {recipe.allreduce}"
        raise UserError(
            f"--sync-batchnorm with {what}: shards exchange statistics through the arena", hint=f"leave {what} out"
        )
    return "torch"
