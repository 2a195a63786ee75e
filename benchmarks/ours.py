"""unisono as a contender of `training.py`: the trainer itself, as `unisono train` runs it.

    Ours("unisono, 2 ranks", prepare(recipe)).turn(1.0)

The one idea: nothing is rebuilt here, so what the trainer spends on anything but training shows. A turn starts the
ranks anew and trains from the starting values: one epoch to warm up, then as many as fill the time. Rank 0 takes the
time from the end of the first epoch to the end of the last; epochs end at a barrier, so that is the slowest rank's.
Shuffling, loading, losses, accuracies and contributions are all in it. Evaluation is not, if the job's data have no
test part.
"""

import time
from dataclasses import replace
from typing import final

from contenders import Contender

import unisono
from unisono.train.job import Job
from unisono.train.trainer import train
from unisono.world import World

TIMEOUT_S = 60.0


@final
class Ours(Contender):
    """A job on the ranks of its recipe."""

    def __init__(self, name: str, job: Job) -> None:
        self.name, self._job = name, job
        self._samples_per_s = 0.0

    def turn(self, seconds: float) -> float:
        samples = self._job.plan.samples
        epochs = 1 + max(1, round(seconds * self._samples_per_s / samples))
        job = replace(self._job, recipe=replace(self._job.recipe, epochs=epochs))

        def work(world: World) -> list[float]:
            ends: list[float] = []
            train(World(world.comm, lambda record: ends.append(time.perf_counter())), job, weights=None)
            return ends

        ends = unisono.run(work, job.recipe.ranks, timeout_s=TIMEOUT_S)[0]
        self._samples_per_s = (epochs - 1) * samples / (ends[-1] - ends[0])
        return self._samples_per_s
