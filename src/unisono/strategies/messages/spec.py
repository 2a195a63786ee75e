"""Spec of `sync` over messages: a copy of the parameters per rank, summed by an all-reduce (`--allreduce ring`)."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import final

import numpy as np

from unisono.comm.base import Communicator
from unisono.models.base import Model
from unisono.optim.options import OptimizerOptions
from unisono.recipe import Recipe
from unisono.rng import generator
from unisono.strategies.arena.arena_join import NEW_START, ArenaStart
from unisono.strategies.arena.state import ArenaExtent
from unisono.strategies.base import Strategy
from unisono.strategies.messages.sync import SyncMessages, SyncMessagesOptions
from unisono.strategies.spec import JobView, StrategySpec, Supports


@final
class SyncMessagesSpec(StrategySpec):
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
            make_sync_messages(comm, model, job.optimizer, extent, job.recipe.strategy.allreduce, rng, start)
        ) as strategy:
            yield strategy


def make_sync_messages(
    comm: Communicator,
    model: Model,
    options: OptimizerOptions,
    extent: ArenaExtent,
    allreduce: str,
    rng: np.random.Generator,
    start: ArenaStart = NEW_START,
) -> SyncMessages:
    """This rank's copy, summed by that algorithm; called by every rank of `comm`. `rng` is the same on every rank."""
    replica = SyncMessages(comm, model, options, allreduce, extent.epochs, SyncMessagesOptions(steps=extent.steps))
    replica.start(model, rng)
    if start.position:
        replica.go_on(start)
    return replica
