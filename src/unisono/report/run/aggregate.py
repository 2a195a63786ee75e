"""RunTotals: the records of a run added up, and what stands out in them. Plain numbers; `outcome_and_advice.py` puts
them into words.

    totals = RunTotals([640, 10], sample_shares(plan, ranks=2)); totals.add(record); totals.mean_s("compute_s");
    totals.waited_for()

The one idea: say nothing that may be chance. A rank is named as slow, or its data as unlike the others', only if that
holds by far more than what would happen among equal ranks. Times are means over the ranks, so that they add up to
about the time of training. Limits: steps are taken for independent of each other, which is half true on a busy machine.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, final

import numpy as np

from unisono.data.shards import ShardPlan, shards_of_rank
from unisono.messages.rank_reports import EpochRecord

TIMES = ("compute_s", "data_s", "wait_s", "update_s")
CHANCE = 4.0
"""Standard deviations by which a rank must be last more often than its turn."""


@final
@dataclass(frozen=True)
class Slow:
    """A rank that all others waited for."""

    rank: int
    host: str
    share: float
    """Of the steps in which ranks met (`local`: not in all), those in which it came last."""
    others_wait_s: float
    """What each of the others waited in the whole run, on average, beyond what this rank waited itself."""


@final
@dataclass(frozen=True)
class Dominant:
    """A rank that contributed far more to the updates than its samples would let one expect."""

    rank: int
    contribution: float
    samples: float
    """Its share of the samples of the steps that were looked at."""


@final
class RunTotals:
    """Grows by a record an epoch."""

    def __init__(self, sizes: Sequence[int], dealt: Sequence[float]) -> None:
        """sizes: elements of each parameter. dealt: each rank's share of the samples in the last step of an epoch."""
        self._weights = np.array(sizes, np.float64) / max(1, sum(sizes))
        self._dealt = list(dealt)
        self._times = {name: np.zeros(len(self._dealt)) for name in TIMES}
        self._last, self.syncs = np.zeros(len(self._dealt)), 0
        """How often ranks met: `local` does not in every step."""
        self.exchange_s = 0.0
        """The part of compute_s that the layers of synchronised batch norm took, the mean over the ranks."""
        self._contributions: list[np.ndarray] = []
        self.hosts: list[str] = []
        """Of each rank, in order."""
        self.epochs, self.steps, self.samples, self.train_s = 0, 0, 0, 0.0
        self.metrics: dict[str, Any] = {}
        """Of the last epoch."""

    def add(self, record: EpochRecord) -> None:
        """One epoch."""
        self.metrics, self.epochs = record.metrics, self.epochs + 1
        self.steps += record.steps
        self.samples += sum(entry["samples"] for entry in record.ranks)
        self.train_s += record.metrics["epoch_s"]
        self.hosts = [entry["host"] for entry in record.ranks]
        for name, total in self._times.items():
            total += [entry[name] for entry in record.ranks]
        self.exchange_s += sum(entry.get("exchange_s", 0.0) for entry in record.ranks) / self.ranks
        self.syncs += record.meetings
        self._last += [entry["last_steps"] for entry in record.ranks]
        shares = np.asarray(record.shares, np.float64)  # (rank, parameter, 3)
        self._contributions.append(shares[:, :, 0] @ self._weights)

    @property
    def ranks(self) -> int:
        return len(self._dealt)

    @property
    def nodes(self) -> int:
        return max(1, len(set(self.hosts)))

    @property
    def crowd(self) -> int:
        """Ranks on the host that has most of them."""
        return max(Counter(self.hosts).values(), default=self.ranks)

    def mean_s(self, name: str) -> float:
        """Seconds in the whole run, the mean over the ranks."""
        return float(self._times[name].mean())

    def steady_sync_s(self, first_sync_s: float) -> float:
        """A meeting's waiting and updating, without the first one's, which also sets things up; 0: too little was
        waited beside it to tell."""
        if self.syncs < 2:
            return first_sync_s
        return max(0.0, self.mean_s("wait_s") + self.mean_s("update_s") - first_sync_s) / (self.syncs - 1)

    def waited_for(self) -> Slow | None:
        """The rank that was last in most steps, if that is neither chance nor without consequence."""
        if self.ranks == 1 or not self.syncs:
            return None
        rank, turn = int(self._last.argmax()), 1.0 / self.ranks
        share = float(self._last[rank]) / self.syncs
        chance = sqrt(turn * (1 - turn) / self.syncs)
        waits = self._times["wait_s"]
        others_s = float((waits.sum() - waits[rank]) / (self.ranks - 1) - waits[rank])
        felt = others_s > 0.1 * sum(self.mean_s(name) for name in TIMES)
        # Halfway between its turn and always: below that others are slow as well.
        if share < (turn + 1) / 2 or share - turn < CHANCE * chance or not felt:
            return None
        return Slow(rank, self.hosts[rank], share, others_s)

    def dominant(self) -> list[Dominant]:
        """Ranks whose contribution exceeds twice their share of the samples.

        The mean over epochs and parameters, these weighted by their number of elements. Late in training single
        samples can make up most of a gradient, so three standard errors are taken off, and three epochs are needed.
        """
        if len(self._contributions) < 3 or self.ranks == 1:
            return []
        found = np.array(self._contributions)  # (epoch, rank)
        means, errors = found.mean(axis=0), found.std(axis=0, ddof=1) / sqrt(len(found))
        return [
            Dominant(rank, float(means[rank]), share)
            for rank, share in enumerate(self._dealt)
            if means[rank] - 3 * errors[rank] > 2 * share
        ]


def sample_shares(plan: ShardPlan, ranks: int, masters: int = 0, steps: range | None = None) -> list[float]:
    """Each rank's share of the samples in the last step of an epoch, whose contributions are looked at.

    masters: of an asynchronous run, who have none; its workers are dealt the same. steps: with replicas, those up to
    their last meeting instead.
    """
    if masters:
        return [0.0 if rank < masters else 1.0 / (ranks - masters) for rank in range(ranks)]
    steps = steps or range(plan.steps_per_epoch - 1, plan.steps_per_epoch)
    seen = [sum(plan.shard_samples(step, shard) for step in steps) for shard in range(plan.live(steps.start))]
    dealt = [sum(seen[shard] for shard in shards_of_rank(len(seen), ranks, rank)) for rank in range(ranks)]
    return [count / sum(seen) for count in dealt]
