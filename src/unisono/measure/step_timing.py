"""Steps: real steps of training, one by one, to be measured.

    steps = Steps(world, strategy, job); times_s = steps.take(10); steps.take(10, spans)

The one idea: what is measured is what training does (the strategy, the loader, the learner are its own), without what
follows an epoch: evaluation, records, files. Every rank takes the same steps; all begin together.

Limits: the job has epochs enough for all steps (`with_steps`).
"""

from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter
from typing import TypeAlias, final

from unisono.data.loader import Group
from unisono.measure.profile.instrument import Span
from unisono.strategies.base import Load, Strategy, Trace
from unisono.training.job import Job
from unisono.training.round_schedule import RoundSchedule
from unisono.training.trainer import Learner
from unisono.world import World

Places: TypeAlias = Iterator[tuple[int, int, int]]


def with_steps(job: Job, steps: int) -> Job:
    """The job with as many epochs as so many steps of whole batches take."""
    whole = max(1, job.plan.steps_per_epoch - 1)
    return replace(job, recipe=job.recipe.with_options(epochs=-(-steps // whole)))


@final
class Steps:
    """Of one rank, one after the other, of whole batches: the ragged end of an epoch is left out."""

    def __init__(self, world: World, strategy: Strategy, job: Job) -> None:
        self._world, self._strategy = world, strategy
        walk = RoundSchedule(job.plan.steps_per_epoch, job.recipe.learning.epochs)
        self._learner = Learner(strategy, job, walk, world.report)
        self._places = _whole_batches(walk)

    def take(self, count: int, spans: list[Span] | None = None) -> list[float]:
        """Seconds of each; all ranks begin together. spans: where to note what happens outside the model."""
        self._world.comm.barrier()

        trace = self._strategy.trace = None if spans is None else _noting(spans)
        return [self._step(trace) for _ in range(count)]

    def _step(self, trace: Trace | None) -> float:
        batch = self._learner.batch(*next(self._places))._replace(shares=False)
        if trace is not None:
            batch = batch._replace(load=_timed(batch.load, trace))
        begun = perf_counter()
        self._strategy.step(batch)
        ended = perf_counter()
        if trace is not None:
            trace("step", begun, ended)
        return ended - begun


def _noting(spans: list[Span]) -> Trace:
    note = spans.append
    return lambda what, begun, ended: note(((what,), begun, ended))


def _timed(load: Load, trace: Trace) -> Load:
    def timed(shards: range) -> list[Group]:
        begun = perf_counter()
        groups = load(shards)
        trace("data", begun, perf_counter())
        return groups

    return timed


def _whole_batches(walk: RoundSchedule) -> Places:
    """(position, epoch, step) of the steps whose batch is whole, in order; where an epoch is one step, of that."""
    for position in range(1, walk.final):
        epoch, step = walk.where(position)
        if step < max(1, walk.steps - 1):
            yield position, epoch, step
