"""Specs of `sync`: on the arena, and over messages with a copy of the parameters per rank (`--allreduce ring`)."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, final

import numpy as np

from unisono.arena.membership.member import Member
from unisono.comm.base import Communicator
from unisono.models.base import Model
from unisono.optim.options import OptimizerOptions
from unisono.recipe import Recipe
from unisono.rng import generator
from unisono.strategies.arena.attach import NEW_START, ArenaStart, join_arena
from unisono.strategies.arena.state import ArenaExtent, ArenaState
from unisono.strategies.arena.sync import Sync
from unisono.strategies.base import Strategy
from unisono.strategies.compression import wire_notes, wire_type
from unisono.strategies.machines.remote_view import RemoteView
from unisono.strategies.messages.replica import Replica, ReplicaOptions
from unisono.strategies.specs.base import JobView, StrategySpec, Supports
from unisono.strategies.supervised import SupervisedHooks


@final
class SyncOnArena(StrategySpec):
    """One copy of the parameters per machine, the same bits on any ranks and machines."""

    name = "sync"
    title = "`sync`"
    asynchronous, external, recipe_shards, shards_are_replicas = False, False, True, False
    supports = Supports(
        any_ranks=True, same_ranks="yes", shared_memory=True, shared_memory_launched=True, take_over=True,
        replacement=True, machines_by_hand=True, machines_launched=True, snapshots=True, snapshots_launched=True,
        snapshots_machines=True, numpy=True, torch=True, gpus=False, sync_batchnorm=True, wire=True, lars=True,
        slow=True, profile=True, tune=True, scale=True, predict=True,
    )  # fmt: skip

    def notes(self, recipe: Recipe, machines: int) -> list[str]:
        return wire_notes(recipe, machines)

    @contextmanager
    def connect(
        self, job: JobView, comm: Communicator, model: Model, start: ArenaStart = NEW_START
    ) -> Iterator[Strategy]:
        extent = replace(self.extent(job, spare=bool(job.snapshots)), size=comm.size)
        start = replace(start, wire=wire_type(job.recipe.strategy.wire))
        rng = generator(job.recipe.learning.seed, "init")
        with closing(make_on_arena(comm, model, job.optimizer, extent, rng, start)) as strategy:
            yield strategy

    def supervise(self, job: JobView, model: Model, shared: ArenaState) -> SupervisedHooks:
        return SyncHooks(shared, job.optimizer)


@final
class SyncHooks(SupervisedHooks):
    """Everything that ranks have in common is in the arena."""

    def __init__(self, shared: ArenaState, options: OptimizerOptions) -> None:
        super().__init__(shared)
        self._options = options

    def strategy(
        self,
        member: Member,
        model: Model,
        on_spare: Callable[[int], None],
        away: RemoteView,
        report: Callable[[Any], None],
    ) -> Strategy:
        return Sync(self._shared, member, model, self._options, on_spare, away)


@final
class SyncOverMessages(StrategySpec):
    """A copy of the parameters per rank, and any all-reduce over any communicator."""

    name = "sync"
    title = "`sync --allreduce ring`"
    asynchronous, external, recipe_shards, shards_are_replicas = False, False, True, False
    supports = Supports(
        any_ranks=False, same_ranks="yes", shared_memory=False, shared_memory_launched=False, take_over=False,
        replacement=False, machines_by_hand=False, machines_launched=True, snapshots=False, snapshots_launched=True,
        snapshots_machines=True, numpy=True, torch=True, gpus=False, sync_batchnorm=False, wire=False, lars=True,
        slow=True, profile=True, tune=True, scale=True, predict=False,
    )  # fmt: skip

    def chosen_by(self, recipe: Recipe) -> str:
        return f"--allreduce {recipe.strategy.allreduce}"

    @contextmanager
    def connect(
        self, job: JobView, comm: Communicator, model: Model, start: ArenaStart = NEW_START
    ) -> Iterator[Strategy]:
        extent, rng = self.extent(job), generator(job.recipe.learning.seed, "init")
        with closing(
            make_replica(comm, model, job.optimizer, extent, job.recipe.strategy.allreduce, rng, start)
        ) as strategy:
            yield strategy


def make_on_arena(
    comm: Communicator,
    model: Model,
    options: OptimizerOptions,
    extent: ArenaExtent,
    rng: np.random.Generator,
    start: ArenaStart = NEW_START,
) -> Sync:
    """This rank's side of an arena per machine; called by every rank of `comm`.

    Starting values are drawn from `rng`, which is the same on every rank, unless `start` is in the middle.
    """
    joined = join_arena(comm, model, options, extent, rng, start)
    return Sync(joined.shared, joined.member, model, options, away=joined.away)


def make_replica(
    comm: Communicator,
    model: Model,
    options: OptimizerOptions,
    extent: ArenaExtent,
    allreduce: str,
    rng: np.random.Generator,
    start: ArenaStart = NEW_START,
) -> Replica:
    """The same with a copy per rank, summed by that algorithm."""
    replica = Replica(comm, model, options, allreduce, extent.epochs, ReplicaOptions(steps=extent.steps))
    replica.start(model, rng)
    if start.position:
        replica.go_on(start)
    return replica
