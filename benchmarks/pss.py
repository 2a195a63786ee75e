"""How much memory training takes on some ranks: the proportional set size (PSS) of all of them, summed.

The one idea: PSS divides a page by the number of processes that map it, so its sum over the ranks counts shared memory
once. It is read before the strategy is made and after a few steps; the difference, less the gradients, is parameters
and optimizer state: how many copies is that? Gradients are the sum of all (in chunks), and a vector for each shard.

    print(footprint(prepare(Recipe.from_options(model="mlp:2048,2048", ranks=8, ...))).copies)

Limits: Linux. Interpreters and activations are in the difference too, so a single copy reads as slightly more than 1.
"""

from dataclasses import dataclass
from functools import partial
from typing import final

from threadpoolctl import threadpool_limits

import unisono
from unisono.data.loader import Loader
from unisono.models.base import Model
from unisono.models.nets import build
from unisono.optim import make as make_optimizer
from unisono.resources import pss_bytes
from unisono.rng import generator
from unisono.strategies.arena.spec import make_sync_arena
from unisono.strategies.base import Batch, Strategy
from unisono.training.job import Job
from unisono.world import World

STEPS = 2


@final
@dataclass(frozen=True)
class Footprint:
    """Bytes, summed over the ranks."""

    pss: int
    """All of it, interpreters and their share of the data included;"""
    grown: int
    """by how much it grew with the strategy;"""
    gradients: int
    """of which gradients;"""
    one_copy: int
    """parameters and optimizer state, once."""

    @property
    def copies(self) -> float:
        return (self.grown - self.gradients) / self.one_copy


def footprint(job: Job, *, undo: bool) -> Footprint:
    """What training `job` takes on the ranks of its recipe; undo: with the copy from which steps are redone."""
    found = unisono.run(lambda world: _work(world, job, undo), job.recipe.ranks.count)
    before, after = (sum(rank[name] for rank in found) for name in ("before", "after"))
    vector = 4 * job.model().layout.length
    vectors = 1 + job.plan.shards
    states = len(make_optimizer(job.optimizer).state_names)
    return Footprint(after, after - before, vectors * vector, (1 + states) * vector)


def _work(world: World, job: Job, undo: bool) -> dict[str, int]:
    small = build("mlp:4", job.dataset.features, job.dataset.outputs)
    with threadpool_limits(1, user_api="blas"):
        _train(world, job, small, undo)  # what the first steps touch of the interpreter is not the strategy's
        before = _pss_of_all(world)
        strategy = _train(world, job, job.model(), undo)
        after = _pss_of_all(world)
        assert strategy.params.size  # it was there until now
        return {"before": before, "after": after}


def _train(world: World, job: Job, model: Model, undo: bool) -> Strategy:
    plan, data = job.plan, job.dataset
    extent = job.extent(undo=undo)
    strategy = make_sync_arena(world.comm, model, job.optimizer, extent, generator(plan.seed, "init"))
    loader, order = Loader(plan, data.train_x, data.train_y), plan.order(0)
    for step in range(STEPS):
        load = partial(loader.groups, order, step)
        lr, number = job.lr(step + 1), step + 1
        strategy.step(Batch(number, 1, step, plan.live(step), plan.batch_samples(step), lr, number, load))
    return strategy


def _pss_of_all(world: World) -> int:
    """This rank's PSS while every rank holds what it holds."""
    world.comm.barrier()
    found = pss_bytes()
    world.comm.barrier()
    return found
