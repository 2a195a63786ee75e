"""Counts: what the ranks that share an arena count and time, left where all of them, and their successors, read it.

The one idea: each rank has a row of its own, which it fills before every meeting; so after a meeting anybody can say
what everybody did, and a process that takes a dead one's place goes on counting where it stopped.

    counts = Counts(shared, slot, model.layout.sizes); counts.begin(batch, first=True); counts.spent["wait_s"] += 0.1
    counts.keep(); counts.times(epoch=1)

Limits: times of work that is done again are counted again, samples are not. `ledger.py` is the same for ranks that
share no memory.
"""

import time
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from unisono.strategies.base import Batch, Clock
from unisono.strategies.contributions import shares as shares_of
from unisono.strategies.shared import BEGUN, ENDED, FIRST_SYNC, FROM_STEP, STATS, Shared


@final
class Counts:
    """Of the rank in `slot`; `sizes`: elements of each parameter."""

    def __init__(self, shared: Shared, slot: int, sizes: Sequence[int]) -> None:
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
        """Those of all ranks; of other machines, as of the last survey."""
        return self._shared.stats if self._shared.desk is None else self._shared.desk.stats

    def memory_bytes(self) -> int:
        return int(self._stats[:, STATS.index("memory_bytes")].sum())

    def contributions(self) -> np.ndarray:
        desk = self._shared.desk
        complete = complete_shares(self._shared) if desk is None else desk.shares[None]
        # Of those who worked in this epoch: others have left rows of earlier ones.
        stats = self._stats
        dealt = np.where(stats[:, 0] == stats[:, 0].max(), stats[:, STATS.index("dealt")], 0.0)
        return shares_of(complete, self._sizes, (dealt / (dealt.sum() or 1.0)).tolist())


def complete_shares(shared: Shared) -> np.ndarray:
    """(owner, rank + 1, parameter, 3): what was left in the view in which the step was committed; owners of an earlier
    attempt are behind it."""
    complete: np.ndarray = shared.shares[shared.share_labels == shared.share_labels.max()]
    return complete
