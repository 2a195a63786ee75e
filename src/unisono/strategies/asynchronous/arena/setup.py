"""AsyncSetup: what all ranks of an asynchronous run have in common, and what is done with it while there is no rank.

The one idea: the process that forks the ranks makes the memory, and it is also the one that is there when they all are
gone: before the first rank it says what a resumed run has done already, after the last one it ends what they had begun.

    setup = set_up(model, terms, options, pushes=3750, size=4); settle(setup, shared, epoch=2)

Limits: for ranks that are forked afterwards.
"""

from contextlib import closing
from dataclasses import dataclass
from typing import final

from unisono.arena.arena import Arena
from unisono.models.base import Model
from unisono.optim import make
from unisono.optim.options import OptimizerOptions
from unisono.strategies.arena.state import ArenaState
from unisono.strategies.asynchronous.arena import progress
from unisono.strategies.asynchronous.arena.buffers import AsyncBuffers, AsyncBuffersPlan, plan_async_buffers
from unisono.strategies.asynchronous.arena.parameter_shard import ParameterShard
from unisono.strategies.asynchronous.options import AsyncOptions


@final
@dataclass(frozen=True)
class AsyncSetup:
    """What all ranks of a run have in common."""

    async_buffers: AsyncBuffers
    terms: AsyncOptions
    options: OptimizerOptions
    """The masters'."""


def set_up(model: Model, terms: AsyncOptions, options: OptimizerOptions, pushes: int, size: int) -> AsyncSetup:
    """With memory of its own, for ranks that are forked afterwards."""
    sections = plan_async_buffers(model, terms, len(make(options).state_names), size, pushes)
    with closing(Arena.create(AsyncBuffersPlan(sections, size, terms.masters))) as arena:
        return AsyncSetup(arena.state, terms, options)


def make_parts(setup: AsyncSetup, shared: ArenaState) -> list[ParameterShard]:
    """All parts of the parameters."""
    return [
        ParameterShard(setup.async_buffers, shared.vectors, shared.buffers, number, setup.terms, setup.options)
        for number in range(setup.terms.masters)
    ]


def settle(setup: AsyncSetup, shared: ArenaState, epoch: int) -> bool:
    """When no rank is left: applies what is in the log of the epoch; whether the epoch is whole."""
    for part in make_parts(setup, shared):
        part.open(epoch, len(shared.steps))
        while part.behind:
            part.turn()
        part.close()
    return progress.leave(setup.async_buffers, shared.steps, epoch)


def adopt(setup: AsyncSetup, shared: ArenaState, epoch: int) -> None:
    """Before the first rank of a resumed run: what is done of the epoch that is next."""
    progress.adopt(setup.async_buffers, shared.steps, epoch)
