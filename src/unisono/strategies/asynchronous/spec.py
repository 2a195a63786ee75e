"""Spec of `async`: masters and workers, in the arena or over messages."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

from unisono.comm.base import Communicator
from unisono.data.shards import ShardPlan
from unisono.models.base import Model
from unisono.optim.options import OptimizerOptions
from unisono.recipe import Recipe
from unisono.rng import generator
from unisono.strategies.arena.arena_join import NEW_START, ArenaStart
from unisono.strategies.arena.state import ArenaExtent, ArenaState
from unisono.strategies.asynchronous import options as terms
from unisono.strategies.asynchronous.options import AsyncOptions
from unisono.strategies.base import Strategy
from unisono.strategies.spec import JobView, SupervisedHooks, SupervisedSpec, Supports


@final
class AsyncSpec(SupervisedSpec):
    """Workers push gradients to masters and never wait for each other."""

    name = "async"
    title = "`async`"
    asynchronous, external, recipe_shards, shards_are_replicas = True, False, False, False
    options = terms.OPTIONS
    elsewhere = (
        "which is not asynchronous",
        "leave it out, or use --strategy async with --masters and more ranks",
    )
    supports = Supports(
        any_ranks=False, same_ranks="with `--order`", shared_memory=True, shared_memory_launched=False,
        take_over=True, replacement=True, machines_by_hand=False, machines_launched=True, snapshots=True,
        snapshots_launched=True, snapshots_machines=True, numpy=True, torch=True, gpus=False, sync_batchnorm=False,
        wire=False, lars=False, slow=True, profile=False, tune=False, scale=False, predict=True,
    )  # fmt: skip

    def resolve(self, recipe: Recipe) -> Recipe:
        return terms.resolve(recipe)

    def check(self, job: JobView) -> None:
        async_options_of(job, job.model())

    def plan_epoch(self, recipe: Recipe, plan: ShardPlan) -> ShardPlan:
        return terms.plan_epoch(recipe, plan.samples)

    def optimizer(self, options: OptimizerOptions) -> OptimizerOptions:
        return terms.masters_optimizer(options)

    def updates(self, plan: ShardPlan) -> int:
        return plan.live(0)

    def batch_samples(self, plan: ShardPlan) -> int:
        return plan.shard_size

    def masters(self, recipe: Recipe) -> int:
        return recipe.strategy.masters

    def extent(self, job: JobView, *, undo: bool = False, spare: bool = False) -> ArenaExtent:
        """Gradients have memory of their own, see `asynchronous/arena/buffers.py`."""
        return ArenaExtent(
            job.recipe.ranks.count, 1, (1,), job.updates, job.recipe.learning.epochs, job.blocks, False, spare
        )

    @contextmanager
    def connect(
        self, job: JobView, comm: Communicator, model: Model, start: ArenaStart = NEW_START
    ) -> Iterator[Strategy]:
        from unisono.strategies.asynchronous.messages.strategy import AsyncMessages

        recipe, rng = job.recipe, generator(job.recipe.learning.seed, "init")
        strategy = AsyncMessages(comm, model, job.optimizer, async_options_of(job, model), recipe.learning.epochs, rng)
        if start.position or recipe.faults.resume:  # halted in its first epoch, a run goes on after round 0
            strategy.go_on(start)
        yield strategy

    def supervise(self, job: JobView, model: Model, shared: ArenaState) -> SupervisedHooks:
        from unisono.strategies.asynchronous.arena.hooks import AsyncHooks, set_up

        ranks = job.recipe.ranks.count
        setup = set_up(model, async_options_of(job, model), job.optimizer, job.updates, ranks)
        return AsyncHooks(shared, setup, ranks)


def async_options_of(job: JobView, model: Model) -> AsyncOptions:
    """What masters and workers go by."""
    return AsyncOptions.of(job.recipe, job.updates, model.layout.sizes, job.lr)
