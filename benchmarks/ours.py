"""unisono as a contender of `training.py`: the trainer itself, as `unisono train` runs it.

    Ours("unisono, 2 ranks", prepare(recipe)).turn(1.0)

The one idea: nothing is rebuilt here, so what the trainer spends on anything but training shows. A turn starts the
ranks anew, under a supervisor, and trains from the starting values: an epoch to warm up, then as many as fill the time.
The time is that between the records of the first epoch and of the last; an epoch ends when all ranks have met.
Shuffling, loading, losses, accuracies and contributions are all in it. Evaluation is not, if the job's data have no
test part.
"""

import time
from dataclasses import replace
from typing import Any, final

from contenders import Contender

from unisono.train.job import Job
from unisono.train.team import Places, Team


@final
class Ours(Contender):
    """A job on the ranks of its recipe; undo: see `Team`."""

    def __init__(self, name: str, job: Job, *, undo: bool = True) -> None:
        self.name, self._job, self._undo = name, job, undo
        self._samples_per_s = 0.0

    def turn(self, seconds: float) -> float:
        samples = self._job.plan.samples
        epochs = 1 + max(1, round(seconds * self._samples_per_s / samples))
        job = replace(self._job, recipe=replace(self._job.recipe, epochs=epochs))
        ends: list[float] = []

        def hear(rank: int, record: dict[str, Any]) -> None:
            if "metrics" in record:
                ends.append(time.perf_counter())

        Team(job, Places(), undo=self._undo).train(hear)
        self._samples_per_s = (epochs - 1) * samples / (ends[-1] - ends[0])
        return self._samples_per_s
