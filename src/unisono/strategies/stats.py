"""Stats: what each rank counts and times in an epoch, and how the other ranks read it.

The one idea: two classes with the same questions (`times`, `clock`, `contributions`). `ArenaStats` keeps a row per rank
in the arena, written before every barrier: after it any rank can read all rows, and a replacement continues the row of
the rank that died. `MessageStats` counts in its own process and gathers the rows on rank 0 once an epoch.

    stats = ArenaStats(shared, slot, model.layout.sizes); stats.begin(batch, first=True); stats.keep()
    stats = MessageStats(comm, model); stats.begin(); stats.count(result, samples, spent); stats.gather()

Limits: in the arena, times of repeated work count again, samples do not. Over messages, the last rank to arrive at a
step is not known, because ranks wait inside collectives.
"""

import time
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from unisono.comm.base import Communicator
from unisono.comm.topology.shared_machine import host_names
from unisono.models.base import Model
from unisono.strategies.arena.state import BEGUN, ENDED, FIRST_SYNC, FROM_STEP, STATS, ArenaState, segments_of
from unisono.strategies.base import TIMES, Batch, Clock, StepResult
from unisono.strategies.contribution_stats import shares as shares_of
from unisono.strategies.contribution_stats import sums as leave_sums


@final
class ArenaStats:
    """Of the rank in `slot`; `sizes`: elements of each parameter."""

    def __init__(self, shared: ArenaState, slot: int, sizes: Sequence[int]) -> None:
        self._shared, self._slot, self._sizes = shared, slot, sizes
        self.spent = self._kept()
        """By the names of `STATS`."""

    def _kept(self) -> dict[str, float]:
        """What was left in this rank's row; another process may have begun it."""
        return dict(zip(STATS, self._shared.stats[self._slot].tolist(), strict=True))

    def begin(self, batch: Batch, *, first: bool) -> None:
        """A step; with it, maybe, its epoch."""
        if self.spent["epoch"] != batch.epoch:
            self.spent = self._kept()
        if self.spent["epoch"] != batch.epoch:
            self.spent = dict.fromkeys(STATS, 0.0) | {"epoch": float(batch.epoch)}
        clock = self._shared.clock
        if first and (batch.step == 0 or not clock[BEGUN]):
            clock[BEGUN], clock[FROM_STEP] = time.perf_counter(), batch.step

    def end(self, samples: int, *, first: bool) -> None:
        """The step is done; `samples` are counted once, however often they were computed."""
        self.spent["samples"] += samples
        if first and not self._shared.clock[FIRST_SYNC]:
            self._shared.clock[FIRST_SYNC] = self.spent["wait_s"] + self.spent["update_s"]

    def end_epoch(self, *, first: bool) -> None:
        """All steps of the epoch are done; may be told again."""
        clock = self._shared.clock
        if first and not clock[BEGUN]:  # all its steps were done before the run was resumed: none is timed
            clock[BEGUN], clock[FROM_STEP] = time.perf_counter(), len(self._shared.steps)
        if first and clock[ENDED] < clock[BEGUN]:
            clock[ENDED] = time.perf_counter()

    def keep(self) -> None:
        """For the others, before they are met."""
        self._shared.stats[self._slot] = tuple(self.spent.values())

    def epoch_sums(self) -> tuple[float, float]:
        loss_sum, correct = self._shared.steps.sum(axis=0).tolist()
        return loss_sum, correct

    def times(self, epoch: int) -> list[dict[str, Any]]:
        rows = (dict(zip(STATS, row, strict=True)) for row in self._stats.tolist())
        told = [name for name in STATS if name not in ("epoch", "dealt", "memory_bytes")]
        return [{name: row[name] if row["epoch"] == epoch else 0.0 for name in told} for row in rows]

    def clock(self) -> Clock:
        begun, ended, first_sync_s, from_step = self._shared.clock.tolist()
        return Clock(begun, ended, first_sync_s, int(from_step))

    @property
    def _stats(self) -> np.ndarray:
        """Of all ranks; of other machines as of the last evaluation."""
        return self._shared.stats if self._shared.mailbox is None else self._shared.mailbox.stats

    def memory_bytes(self) -> int:
        return int(self._stats[:, STATS.index("memory_bytes")].sum())

    def contributions(self) -> np.ndarray:
        mailbox = self._shared.mailbox
        complete = complete_shares(self._shared) if mailbox is None else mailbox.shares[None]
        # Of those who worked in this epoch: others have left rows of earlier ones.
        stats = self._stats
        dealt = np.where(stats[:, 0] == stats[:, 0].max(), stats[:, STATS.index("dealt")], 0.0)
        return shares_of(complete, self._sizes, (dealt / (dealt.sum() or 1.0)).tolist())


def complete_shares(shared: ArenaState) -> np.ndarray:
    """(owner, rank + 1, parameter, 3): what was left in the view in which the step was committed; owners of an earlier
    attempt are behind it."""
    complete: np.ndarray = shared.shares[shared.share_labels == shared.share_labels.max()]
    return complete


_STATS = ("samples", *TIMES, "memory_bytes")


@final
class MessageStats:
    """One rank's side; `hosts`: where each rank runs."""

    def __init__(self, comm: Communicator, model: Model) -> None:
        self._comm, self._model = comm, model
        self._sums, self._counts = np.zeros(2), np.zeros(len(_STATS))
        self._told = np.zeros((comm.size, len(_STATS)))
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
        return [dict(zip(_STATS[:-1], row, strict=True)) | {"last_steps": 0.0} for row in rows]

    def clock(self) -> Clock:
        return Clock(self._begun, self._ended, self._first_sync_s, self._from_step)

    def note_memory(self, nbytes: int) -> None:
        self._counts[-1] = nbytes

    def memory_bytes(self) -> int:
        return int(self._told[:, -1].sum())
