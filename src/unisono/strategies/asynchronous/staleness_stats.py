"""StalenessStats: what a log of pushes says: how stale they were, how many were dropped; and what each worker
contributed.

    found = staleness_stats(log, size=4); found.record.metrics["staleness_mean"]; found.ranks[2]["staleness_max"]

The one idea: staleness is read off the log of what happened, never estimated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from unisono.models.base import Model
from unisono.strategies.arena.state import segments_of
from unisono.strategies.asynchronous.sequencer import DROP, HELLO, PUSH, Entry
from unisono.strategies.base import EpochExtras
from unisono.strategies.contribution_stats import shares, sums

_AT = {name: number for number, name in enumerate(Entry._fields)}


@final
@dataclass(frozen=True)
class StalenessStats:
    """Of one epoch."""

    record: EpochExtras
    ranks: Sequence[dict[str, Any]]
    """Columns of ranks.csv."""


def staleness_stats(log: np.ndarray, size: int) -> StalenessStats:
    """log: (entries, fields of `Entry`)."""
    kinds = log[:, _AT["kind"]]
    pushes = log[(kinds == PUSH) | (kinds == DROP)]
    stale, dropped = pushes[:, _AT["staleness"]], pushes[:, _AT["kind"]] == DROP
    whose = pushes[:, _AT["rank"]]
    ranks = []
    for rank in range(size):
        own = stale[whose == rank]
        ranks.append(
            {
                "samples": int(pushes[whose == rank, _AT["samples"]].sum()),
                "pushes": len(own),
                "staleness_mean": float(own.mean()) if len(own) else 0.0,
                "staleness_max": int(own.max(initial=0)),
                "drops": int(dropped[whose == rank].sum()),
            }
        )
    metrics = {
        "staleness_mean": float(stale.mean()) if len(stale) else 0.0,
        "staleness_max": int(stale.max(initial=0)),
        "staleness_counts": np.bincount(stale).tolist() if len(stale) else [],
        "updates": int(log[:, _AT["updates"]].sum()),
        "drops": int(dropped.sum()),
    }
    rows = np.stack([whose, pushes[:, _AT["batch"]], stale, ~dropped, _greeted(log)], axis=1).tolist()
    return StalenessStats(EpochExtras(metrics, rows), ranks)


def _greeted(log: np.ndarray) -> np.ndarray:
    """For each push, how many pushes of the epoch there were when its worker had greeted last."""
    kinds, whose = log[:, _AT["kind"]], log[:, _AT["rank"]]
    found = np.zeros(len(log), np.int64)
    for at in np.flatnonzero(kinds == HELLO).tolist():
        found[at:][whose[at:] == whose[at]] = log[at, _AT["ordinal"]]
    chosen: np.ndarray = found[(kinds == PUSH) | (kinds == DROP)]
    return chosen


def contributions_of(gradients: np.ndarray, pushes: Sequence[int], model: Model) -> np.ndarray:
    """(rank, parameter, contributions.FIELDS) of the last gradient that each worker sent, out of their sum.

    gradients: (rank, padded length). pushes: how many each rank sent; 0: a master.
    """
    working = [rank for rank, count in enumerate(pushes) if count]
    whole = gradients[working].sum(axis=0)
    parts = [([row], 0) if rank in working else ([], 0) for rank, row in enumerate(gradients)]
    found = np.zeros((1, len(gradients) + 1, len(model.layout.shapes), 3))
    sums(parts, whole, segments_of(model).ranges(0, len(whole)), found[0])
    weights = [1.0 if rank in working else 0.0 for rank in range(len(gradients))]  # each is a mean already
    return shares(found, model.layout.sizes, weights)
