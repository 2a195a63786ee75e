"""Specs of `local`: replicas that are averaged now and then, on the arena, or over messages (`--allreduce ring`)."""

from abc import ABC
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any, final

import numpy as np

from unisono.arena.membership.member import Member
from unisono.comm.base import Communicator
from unisono.data.shards import ShardPlan
from unisono.models.base import Model
from unisono.optim import make as make_optimizer
from unisono.optim.options import OptimizerOptions
from unisono.recipe import Recipe
from unisono.rng import generator
from unisono.strategies.arena.arena_join import NEW_START, ArenaStart
from unisono.strategies.arena.state import ArenaExtent, ArenaState
from unisono.strategies.base import Strategy
from unisono.strategies.local.local_steps import LocalSteps
from unisono.strategies.local.strategy import AVERAGING, join_local, make_local_replica, on_arena
from unisono.strategies.local.sync_schedule import SyncSchedule, resolve_local
from unisono.strategies.machines.mailbox import RemoteView
from unisono.strategies.spec import ArenaSpec, JobView, StrategySpec, SupervisedHooks, Supports
from unisono.strategies.wire_type import wire_type


class _LocalSpec(StrategySpec, ABC):
    """What both have in common."""

    name = "local"
    asynchronous, external, recipe_shards, shards_are_replicas = False, False, True, True
    options = ("sync_every", "local_after")
    elsewhere = ("whose ranks do not walk alone", "use --strategy local, or leave {option} out")

    def resolve(self, recipe: Recipe) -> Recipe:
        return super().resolve(resolve_local(recipe))

    def shared_optimizer(self, options: OptimizerOptions) -> OptimizerOptions:
        return AVERAGING

    def sync_schedule(self, recipe: Recipe, plan: ShardPlan) -> SyncSchedule:
        return _sync_schedule(recipe, plan)

    def replica_vectors(self, job: JobView) -> int:
        return len(make_optimizer(job.optimizer).state_names)


@final
class LocalArenaSpec(_LocalSpec, ArenaSpec):
    """Averages are rounds on the arena, so any number of ranks gives the same bits."""

    title = "`local`"
    supports = Supports(
        any_ranks=True, same_ranks="yes", shared_memory=True, shared_memory_launched=True, take_over=True,
        replacement=True, machines_by_hand=True, machines_launched=True, snapshots=True, snapshots_launched=True,
        snapshots_machines=False, numpy=True, torch=True, gpus=False, sync_batchnorm=False, wire=True, lars=True,
        slow=True, profile=False, tune=False, scale=True, predict=True,
    )  # fmt: skip

    def join(
        self,
        job: JobView,
        comm: Communicator,
        model: Model,
        extent: ArenaExtent,
        rng: np.random.Generator,
        start: ArenaStart,
    ) -> AbstractContextManager[Strategy]:
        local_steps, schedule = _local_steps(job, model, comm.rank), _sync_schedule(job.recipe, job.plan)
        return closing(join_local(comm, local_steps, schedule, extent, rng, start))

    def supervise(self, job: JobView, model: Model, shared: ArenaState) -> SupervisedHooks:
        return LocalHooks(shared, job)


@final
class LocalHooks(SupervisedHooks):
    """A rank walks for replicas whose states are in the arena."""

    def __init__(self, shared: ArenaState, job: JobView) -> None:
        super().__init__(shared)
        self._job = job

    def strategy(
        self,
        member: Member,
        model: Model,
        on_snapshot_copy: Callable[[int], None],
        remote: RemoteView,
        report: Callable[[Any], None],
    ) -> Strategy:
        job = self._job
        local_steps = _local_steps(job, model, remote.rank_of(member.slot))
        return on_arena(
            self._shared, member, local_steps, _sync_schedule(job.recipe, job.plan), on_snapshot_copy, remote
        )


@final
class LocalMessagesSpec(_LocalSpec):
    """Replicas stay with the rank that has their state, and any all-reduce averages them."""

    title = "`local --allreduce ring`"
    supports = Supports(
        any_ranks=False, same_ranks="yes", shared_memory=False, shared_memory_launched=False, take_over=False,
        replacement=False, machines_by_hand=False, machines_launched=True, snapshots=False, snapshots_launched=False,
        snapshots_machines=False, numpy=True, torch=True, gpus=False, sync_batchnorm=False, wire=True, lars=True,
        slow=True, profile=False, tune=False, scale=True, predict=False,
    )  # fmt: skip

    @contextmanager
    def connect(
        self, job: JobView, comm: Communicator, model: Model, start: ArenaStart = NEW_START
    ) -> Iterator[Strategy]:
        extent, rng, recipe = self.extent(job), generator(job.recipe.learning.seed, "init"), job.recipe
        local_steps, sync_schedule = _local_steps(job, model, comm.rank), _sync_schedule(recipe, job.plan)
        with closing(
            make_local_replica(comm, local_steps, sync_schedule, extent, recipe.strategy.allreduce, rng)
        ) as strategy:
            yield strategy


def _local_steps(job: JobView, model: Model, rank: int) -> LocalSteps:
    return LocalSteps(model, job.model_of(rank), job.optimizer, wire_type(job.recipe.strategy.wire))


def _sync_schedule(recipe: Recipe, plan: ShardPlan) -> SyncSchedule:
    return SyncSchedule(plan, int(recipe.strategy.sync_every), recipe.strategy.local_after)
