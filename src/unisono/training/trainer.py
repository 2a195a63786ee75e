"""The loop. Every rank runs it, from the first step to the last; what it finds is the same on all of them.

    unisono.run(lambda world: train(world, job, weights), job.recipe.ranks.count, on_report=...)

A run is a sequence of rounds (`round_schedule.py`): the steps of an epoch, a round that closes it, a final one. Nothing
that decides the result is kept in a process alone, so a rank may begin in the middle: it asks the strategy where
everybody is. One rank reports a record an epoch to whoever started it (`storage/rundir.py` writes them down).
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
from threadpoolctl import threadpool_limits

from unisono.data.loader import Loader
from unisono.errors import UnisonoError
from unisono.messages.rank_reports import Progress, SendReport, StoppedAt
from unisono.models.base import Model
from unisono.rng import generator
from unisono.strategies.base import Batch, NotFinite, Strategy
from unisono.training.epoch_end import EpochEnd
from unisono.training.finite_check import divergence_hint
from unisono.training.job import Job
from unisono.training.round_schedule import RoundSchedule
from unisono.world import World

PROGRESS_S = 0.2
"""How often, at most, there is a word about progress."""


def train(world: World, job: Job, weights: Path | None) -> dict[str, Any] | StoppedAt:
    """Trains with the ranks of `world`, one of which puts the weights into the file `weights`."""
    with threadpool_limits(job.recipe.ranks.threads, user_api="blas"):
        model = job.model_of(world.rank)
        with job.strategy(world.comm, model) as strategy:
            return run_rounds(strategy, model, job, world.report, weights)


def run_rounds(
    strategy: Strategy,
    model: Model,
    job: Job,
    report: SendReport,
    weights: Path | None,
    tick: Callable[[], None] = lambda: None,
) -> dict[str, Any] | StoppedAt:
    """All rounds that are left; `tick` is called after each.

    What was found, equal on every rank; `StoppedAt` a round if it was asked to end.
    """
    schedule = RoundSchedule(job.plan.steps_per_epoch, job.recipe.learning.epochs)
    learner, epoch_end = Learner(strategy, job, schedule, report), EpochEnd(strategy, model, job, report, weights)
    found: dict[str, Any] = {}
    position, done = strategy.at
    with np.errstate(all="ignore"):  # what matters shows in the loss
        while True:
            epoch, step = schedule.where(position)
            if position == schedule.final:
                found = epoch_end.end(position)  # again if it is done: it changes nothing
            elif done:
                pass
            elif step == schedule.steps:
                epoch_end.epoch(position, epoch)
            else:
                learner.step(position, epoch, step)
            if position == schedule.final:
                return found
            tick()
            if strategy.halts_after(position):
                strategy.check_reproducible()
                return StoppedAt(position)
            stopped = position > 0 and step == schedule.steps and bool(epoch_end.stopped(epoch))
            position, done = schedule.after(position, stopped=stopped), False


@final
class Learner:
    """The steps of training."""

    def __init__(self, strategy: Strategy, job: Job, schedule: RoundSchedule, report: SendReport) -> None:
        self._strategy, self._job, self._schedule, self._report = strategy, job, schedule, report
        self._loader = Loader(job.plan, job.dataset.train_x, job.dataset.train_y)
        self._epoch, self._order = 0, np.zeros(0, np.int64)
        plan = job.plan
        self._usual, self._last = (
            (plan.batch_samples(step), plan.live(step)) for step in (0, plan.steps_per_epoch - 1)
        )
        self._told, self._told_samples = time.perf_counter(), 0

    def batch(self, position: int, epoch: int, step: int) -> Batch:
        """The global batch of a step."""
        plan, job, seed = self._job.plan, self._job, self._job.recipe.learning.seed
        if epoch != self._epoch:
            self._epoch, self._order = epoch, plan.order(epoch - 1)
        last = step == self._schedule.steps - 1
        samples, live = self._usual if not last else self._last
        number = (epoch - 1) * self._schedule.steps + step + 1

        def noise(shard: int) -> np.random.Generator:
            return generator(seed, "dropout", epoch - 1, step, shard)

        load = partial(self._loader.groups, self._order, step)
        due = job.snapshots.due(number)
        return Batch(position, epoch, step, live, samples, job.lr(number), number, load, noise, last, due)

    def step(self, position: int, epoch: int, step: int) -> None:
        """Learns one global batch."""
        batch = self.batch(position, epoch, step)
        try:
            self._strategy.step(batch)
        except NotFinite as found:
            raise UnisonoError(
                f"the loss became {found.loss} in epoch {epoch}, step {step + 1}, shard {found.shard}"
                + (f"; the weights of epoch {epoch - 1} are kept" if epoch > 1 else ""),
                hint=found.advice or self._cure(batch.number),
            ) from None
        self._tell_progress(epoch, step, batch.samples)

    def _cure(self, number: int) -> str:
        """Of a loss that is not finite."""
        if number == 1 and self._job.sync_schedule is None:
            return "nothing was learnt yet: it is the data or the model, not the learning rate"
        return divergence_hint(self._job.recipe)

    def _tell_progress(self, epoch: int, step: int, samples: int) -> None:
        self._told_samples += samples
        now = time.perf_counter()
        if now - self._told > PROGRESS_S and self._strategy.first:
            rate = self._told_samples / (now - self._told)
            self._report(Progress(epoch, step + 1, self._schedule.steps, rate))
            self._told, self._told_samples = now, 0
