"""Spec of `sync` on the arena, the default strategy. `messages/spec.py` is `sync` over an all-reduce."""

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from typing import Any, final

import numpy as np

from unisono.arena.membership.member import Member
from unisono.comm.base import Communicator
from unisono.models.base import Model
from unisono.optim.options import OptimizerOptions
from unisono.recipe import Recipe
from unisono.strategies.arena.arena_join import NEW_START, ArenaStart, join_arena
from unisono.strategies.arena.state import ArenaExtent, ArenaState
from unisono.strategies.arena.sync import SyncArena
from unisono.strategies.base import Strategy
from unisono.strategies.machines.mailbox import RemoteView
from unisono.strategies.spec import ArenaSpec, JobView, SupervisedHooks, Supports
from unisono.strategies.wire_type import wire_notes


@final
class SyncArenaSpec(ArenaSpec):
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

    def join(
        self,
        job: JobView,
        comm: Communicator,
        model: Model,
        extent: ArenaExtent,
        rng: np.random.Generator,
        start: ArenaStart,
    ) -> AbstractContextManager[Strategy]:
        return closing(make_sync_arena(comm, model, job.optimizer, extent, rng, start))

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
        on_snapshot_copy: Callable[[int], None],
        remote: RemoteView,
        report: Callable[[Any], None],
    ) -> Strategy:
        return SyncArena(self._shared, member, model, self._options, on_snapshot_copy, remote)


def make_sync_arena(
    comm: Communicator,
    model: Model,
    options: OptimizerOptions,
    extent: ArenaExtent,
    rng: np.random.Generator,
    start: ArenaStart = NEW_START,
) -> SyncArena:
    """This rank's side of an arena per machine; called by every rank of `comm`.

    Starting values are drawn from `rng`, which is the same on every rank, unless `start` is in the middle.
    """
    joined = join_arena(comm, model, options, extent, rng, start)
    return SyncArena(joined.shared, joined.member, model, options, remote=joined.remote)
