"""Ledger: what ranks that share no memory count for themselves, and tell each other when an epoch ends.

The one idea: counting is local and free, telling is one gather an epoch; contributions are exchanged where they are
asked for, once an epoch.

    ledger = Ledger(comm, model); ledger.begin(); ledger.count(result, samples, spent); ledger.gather()

Limits: who came last to a step is not known, for waiting happens inside other people's collectives.
"""

import time
from typing import Any, final

import numpy as np

from unisono.comm.base import Communicator
from unisono.comm.node import host_names
from unisono.models.base import Model
from unisono.strategies.base import TIMES, Clock, StepResult
from unisono.strategies.contributions import shares as shares_of
from unisono.strategies.contributions import sums as leave_sums
from unisono.strategies.shared import segments_of

_COUNTS = ("samples", *TIMES, "memory_bytes")


@final
class Ledger:
    """One rank's side; `hosts`: where each rank runs."""

    def __init__(self, comm: Communicator, model: Model) -> None:
        self._comm, self._model = comm, model
        self._sums, self._counts = np.zeros(2), np.zeros(len(_COUNTS))
        self._told = np.zeros((comm.size, len(_COUNTS)))
        self._shares = np.zeros((1, comm.size + 1, len(model.layout.shapes), 3))
        self._dealt = [1] * comm.size
        self._begun = self._ended = self._first_sync_s = 0.0
        self._from_step = 0
        self.hosts = host_names(comm)

    def begin(self, step: int = 0) -> None:
        """An epoch; at a later step if the run was resumed there, see `go_on`."""
        if step == 0:
            self._sums[:] = self._counts[:] = 0.0
        self._comm.barrier()
        self._begun, self._from_step = time.perf_counter(), step

    def go_on(self, steps: np.ndarray) -> None:
        """The run was resumed: what the steps of the epoch that were done before found, (steps, 2)."""
        for row in steps:  # in the order in which they would have been counted
            self._sums += row
        self._from_step = len(steps)

    def count(self, found: StepResult, samples: int, spent: tuple[float, float, float, float]) -> None:
        """A step: what all found, this rank's samples, and its seconds in the order of `TIMES`."""
        self._sums += found.loss_sum, found.correct
        self._counts += (samples, *spent, 0.0)
        self._first_sync_s = self._first_sync_s or spent[2] + spent[3]

    def end(self) -> None:
        """The steps of the epoch are done, everywhere."""
        self._comm.barrier()
        self._ended = time.perf_counter()
        self._begun = self._begun or self._ended  # all were done before the run was resumed: none is timed

    def gather(self) -> bool:
        """Ranks tell their counts; whether this is the rank that was told."""
        told = self._comm.gather(self._counts)
        if told is not None:
            self._told = told
        return told is not None

    def exchange(self, own: np.ndarray, whole: np.ndarray, samples: int) -> None:
        """Finds out what each rank contributed; `own` (padded length,): its part of the step's gradient, `whole`."""
        mine = np.zeros((2, len(self._model.layout.shapes), 3))
        leave_sums([([own], 0)], whole, segments_of(self._model).ranges(0, len(own)), mine)
        self._shares[0, :-1] = self._comm.all_gather(mine[0])
        self._shares[0, -1] = mine[1]
        self._dealt = self._comm.all_gather(np.array([samples]))[:, 0].tolist()

    def contributions(self) -> np.ndarray:
        total = sum(self._dealt)
        return shares_of(self._shares, self._model.layout.sizes, [count / total for count in self._dealt])

    def epoch_sums(self) -> tuple[float, float]:
        loss_sum, correct = self._sums.tolist()
        return loss_sum, correct

    def times(self) -> list[dict[str, Any]]:
        rows = self._told[:, :-1].tolist()
        return [dict(zip(_COUNTS[:-1], row, strict=True)) | {"last_steps": 0.0} for row in rows]

    def clock(self) -> Clock:
        return Clock(self._begun, self._ended, self._first_sync_s, self._from_step)

    def note_memory(self, nbytes: int) -> None:
        self._counts[-1] = nbytes

    def memory_bytes(self) -> int:
        return int(self._told[:, -1].sum())
