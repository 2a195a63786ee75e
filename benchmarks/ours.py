"""unisono as a contender of `training.py`: the trainer itself, as `unisono train` runs it.

    Ours("unisono, 2 ranks", prepare(recipe)).turn(1.0)

The one idea: nothing is rebuilt here, so what the trainer spends on anything but training shows. A turn starts the
ranks anew, under a supervisor, and trains from the starting values: an epoch to warm up, then as many as fill the time.
The time is that between the records of the first epoch and of the last; an epoch ends when all ranks have met.
Shuffling, loading, losses, accuracies and contributions are all in it. Evaluation is not, if the job's data have no
test part.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import final
from unittest.mock import patch

import numpy as np
from contenders import Contender

from unisono import aligned
from unisono.messages.rank_reports import EpochRecord, Report
from unisono.runs.supervised_training import RunPlaces, SupervisedRun
from unisono.training.job import Job


@final
class Ours(Contender):
    """A job on the ranks of its recipe; undo: see `SupervisedRun`; on_borders False: arrays lie where NumPy puts
    them."""

    def __init__(self, name: str, job: Job, *, undo: bool = True, on_borders: bool = True) -> None:
        self.name, self._job, self._undo, self._on_borders = name, job, undo, on_borders
        self._samples_per_s = 0.0

    def turn(self, seconds: float) -> float:
        samples = self._job.plan.samples
        epochs = 1 + max(1, round(seconds * self._samples_per_s / samples))
        job = replace(self._job, recipe=self._job.recipe.with_options(epochs=epochs))
        ends: list[float] = []

        def hear(rank: int, record: Report) -> None:
            if isinstance(record, EpochRecord):
                ends.append(time.perf_counter())

        with nullcontext() if self._on_borders else numpys_own_memory():
            SupervisedRun(job, RunPlaces(), undo=self._undo).train(hear)
        self._samples_per_s = (epochs - 1) * samples / (ends[-1] - ends[0])
        return self._samples_per_s


@contextmanager
def numpys_own_memory() -> Iterator[None]:
    """Without `aligned.py`, here and in ranks that are forked meanwhile: what borders of 64 bytes cost is measured."""
    plain = {
        "empty": lambda shape, dtype=np.float32: np.empty(shape, dtype),
        "zeros": lambda shape, dtype=np.float32: np.zeros(shape, dtype),
        "stack": lambda count, shape, dtype=np.float32: np.empty((count, *shape), dtype),
        "is_stack": lambda array: array.flags.c_contiguous,
        "as_aligned": np.ascontiguousarray,
    }
    with patch.multiple(aligned, **plain):
        yield
