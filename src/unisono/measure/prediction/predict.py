"""predict: time, efficiency and the best strategy on clusters that are not here, a row for each number of nodes.

    rows = rows_of(costs, work, PredictionRequest(nodes=[2, 4], ranks=2, networks=[parse("10gbit,50us")]))

The one idea: the cost model (`cost.py`) asked again and again. The problem stays the same (strong scaling) or grows
with the ranks (weak: a recipe with a batch per rank). Efficiency is against as many single nodes.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from unisono.errors import UserError
from unisono.measure.options import numbers
from unisono.measure.prediction.cost import ALGORITHMS, Cluster, Costs, Network, Speed, Work, asynchronous, local, sync

MOST_NODES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """Where it would run."""

    nodes: str = "2..1024"
    """Numbers of nodes: 2..1024 doubles from 2 to 1024, 2,3,8 are these."""

    ranks_per_node: int = 0
    """Ranks on each node; the recipe's if 0."""

    samples_per_s: float = 0.0
    """How fast one rank there trains, instead of runs here: for other processors, and GPUs."""

    jitter: float = 0.02
    """With --samples-per-s: the standard deviation of a rank's step, as a share of it."""

    def __post_init__(self) -> None:
        if self.ranks_per_node < 0:
            raise UserError(f"--ranks-per-node is {self.ranks_per_node}", hint="give 1 or more")
        if not 0 <= self.samples_per_s < float("inf"):
            raise UserError(f"--samples-per-s is {self.samples_per_s}", hint="give a number above 0")
        if not 0 <= self.jitter < 1:
            raise UserError(f"--jitter is {self.jitter}", hint="give a share such as 0.02")


@final
@dataclass(frozen=True)
class PredictionRequest:
    """What is asked of the model."""

    nodes: Sequence[int]
    ranks: int
    networks: Sequence[Network]
    weak: bool = False
    """The work is that of one node, and grows with them."""
    sync_every: int = 16
    masters: int = 1


def node_counts(text: str) -> list[int]:
    """'2..1024' or '2,3,8'."""
    span = re.fullmatch(r"\s*(\d+)\.\.(\d+)\s*", text)
    if span is None:
        found = numbers(text, "--nodes")
    else:
        low, high = int(span[1]), int(span[2])
        if not 0 < low <= high:
            raise UserError(f"--nodes {text}: from {low} to {high}", hint="for example --nodes 2..1024")
        found = [low]
        while found[-1] < high:
            found.append(min(high, 2 * found[-1]))
    if max(found) > MOST_NODES:
        raise UserError(f"--nodes {text}: more than {MOST_NODES:,}", hint="give fewer")
    return found


def rows_of(costs: Costs, work: Work, request: PredictionRequest) -> list[dict[str, Any]]:
    """A row for each network and number of nodes, one node first."""
    rows = []
    for network in request.networks:
        lone = sync(costs, work, Cluster(1, request.ranks, network))
        for nodes in dict.fromkeys([1, *request.nodes]):
            cluster = Cluster(nodes, request.ranks, network)
            rows.append(_row(costs, grown(work, cluster, weak=request.weak), cluster, request, lone))
    return rows


def grown(work: Work, cluster: Cluster, *, weak: bool) -> Work:
    """The work of a cluster: as many shards as ranks at least; in weak scaling that of one node for each."""
    if weak:
        return replace(work, batch=work.batch * cluster.nodes, shards=work.shards * cluster.nodes)
    return replace(work, shards=max(work.shards, cluster.world))


def _row(costs: Costs, work: Work, cluster: Cluster, request: PredictionRequest, lone: Speed) -> dict[str, Any]:
    row: dict[str, Any] = {
        "network": cluster.network.name, "nodes": cluster.nodes, "ranks": cluster.world, "batch": work.batch,
    }  # fmt: skip
    if work.batch < cluster.world:
        return row | {"reason": f"a batch of {work.batch} has no work for {cluster.world} ranks"}
    speeds: dict[str, Speed | None] = {
        "sync": sync(costs, work, cluster),
        f"local {request.sync_every}": local(costs, work, cluster, request.sync_every),
        "async": asynchronous(costs, work, cluster, request.masters),
    }
    found = {name: speed for name, speed in speeds.items() if speed is not None}
    best = max(found, key=lambda name: found[name].samples_per_s)
    met = found["sync"]
    row |= {
        "algorithm": met.algorithm, "step_s": met.step_s, "samples_per_s": met.samples_per_s,
        "epoch_s": work.samples / met.samples_per_s, "network_share": met.network_share,
        "efficiency": met.samples_per_s / lone.samples_per_s / cluster.nodes, "best": best,
        "best_efficiency": found[best].samples_per_s / lone.samples_per_s / cluster.nodes,
        "local_samples_per_s": found[f"local {request.sync_every}"].samples_per_s,
        "async_samples_per_s": pushed.samples_per_s if (pushed := speeds["async"]) is not None else None,
    }  # fmt: skip
    if cluster.nodes > 1:
        row |= {f"{name}_step_s": sync(costs, work, cluster, name).step_s for name in ALGORITHMS}
    return row
