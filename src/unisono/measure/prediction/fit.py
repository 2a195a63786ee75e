"""From measured points to the constants of the cost model.

    costs = fitted(points, cores=2); node_step_s(costs, points[0].work, ranks=4)

The one idea: a constant is fitted to the one thing it explains (computing on a lone rank, updating on one and on
several, waiting on several, turns where ranks share cores, replicas where there are any), by least squares of relative
errors, and never below 0.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import final

import numpy as np

from unisono.errors import UserError
from unisono.measure.prediction.cost import Costs, Work, last_of, node_step_s


@final
@dataclass(frozen=True)
class Point:
    """What a step was measured to take, on one node: seconds, the mean over its ranks."""

    name: str
    ranks: int
    work: Work
    step_s: float
    compute_s: float
    data_s: float
    update_s: float
    wait_s: float
    replicas: bool = False
    """Whether each shard had parameters of its own, averaged now and then."""

    @property
    def shards(self) -> int:
        """Of a rank."""
        return math.ceil(self.work.shards / self.ranks)

    @property
    def samples(self) -> float:
        """Of a rank."""
        return self.shards * self.work.batch / self.work.shards


def fitted(points: Sequence[Point], cores: int) -> Costs:
    """The constants that suit these points; some of them of one rank, some of several with a core each.

    Those of ranks that share cores, and of `local` on one rank, say what that costs; without them it costs nothing.
    """
    synced = [point for point in points if not point.replicas]
    lone = [point for point in synced if point.ranks == 1]
    several = [point for point in synced if point.ranks > 1 and point.ranks * point.work.threads <= max(2, cores)]
    if not lone or not several:
        raise UserError("a cost model needs runs on one rank and on several", hint="calibrate with 1 and 2 ranks")
    call_s, shard_s, sample_s = not_below_0(
        [[1.0, point.shards, point.samples] for point in lone], [point.compute_s for point in lone]
    )
    update_s, divided_s = not_below_0(
        [[1.0, 1.0 / point.ranks] for point in (*lone, *several)],
        [point.update_s + _rest(point) for point in (*lone, *several)],
    )
    crowds = []
    for point in several:
        alone_s = call_s + shard_s * point.shards + sample_s * point.samples
        crowds.append(max(0.0, point.compute_s / alone_s - 1) / (point.ranks * point.work.threads - 1))
    costs = Costs(
        call_s=call_s,
        shard_s=shard_s,
        sample_s=sample_s,
        data_s=median(point.data_s / point.samples for point in (*lone, *several)),
        divided_s=divided_s,
        update_s=update_s,
        replica_s=update_s + divided_s,
        crowding=median(crowds),
        jitter_s=median(point.wait_s / last_of(point.ranks, 1.0) for point in several),
        cores=cores,
    )
    turns = [_turn_s(costs, point) for point in synced if point.ranks * point.work.threads > max(2, cores)]
    replicas = [_replica_s(costs, point) for point in points if point.replicas]
    return replace(
        costs,
        turn_s=median(turns) if turns else 0.0,
        replica_s=median(replicas) if replicas else costs.replica_s,
    )


def _turn_s(costs: Costs, point: Point) -> float:
    """Of ranks that share cores: what a step takes beyond their work, for each rank beyond the first on a core."""
    more = point.ranks * point.work.threads / costs.cores - 1
    return max(0.0, point.step_s - node_step_s(costs, point.work, point.ranks)) / more


def _replica_s(costs: Costs, point: Point) -> float:
    """Of replicas on one rank: what each takes beyond the computing and the data of a shard of its own."""
    computing = (costs.call_s + costs.shard_s) * point.shards + costs.sample_s * point.samples
    return max(0.0, point.step_s - computing - costs.data_s * point.samples) / point.shards


def _rest(point: Point) -> float:
    """The time of a step that none of its parts accounts for. A lone rank waits for no other, but passes barriers."""
    waited_s = point.wait_s if point.ranks > 1 else 0.0
    return max(0.0, point.step_s - point.compute_s - point.data_s - point.update_s - waited_s)


def not_below_0(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Coefficients with the least squares of relative errors, none of them below 0; values of 0 or less say nothing."""
    kept = [(row, value) for row, value in zip(rows, values, strict=True) if value > 0]
    width = len(rows[0])
    if not kept:
        return [0.0] * width
    matrix = np.array([row for row, _ in kept]) / np.array([[value] for _, value in kept])  # (point, coefficient)
    best, least = [0.0] * width, math.inf
    for count in range(1, width + 1):  # few coefficients: every set of those above 0 can be tried
        for chosen in itertools.combinations(range(width), count):
            found, *_ = np.linalg.lstsq(matrix[:, chosen], np.ones(len(kept)), rcond=None)
            left = float(np.square(matrix[:, chosen] @ found - 1).sum())
            if (found >= 0).all() and left < least - 1e-12:
                best, least = [0.0] * width, left
                for at, value in zip(chosen, found, strict=True):
                    best[at] = float(value)
    return best
