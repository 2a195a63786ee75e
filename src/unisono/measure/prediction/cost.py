"""The cost model: what a step takes on so many nodes of so many ranks, from what a rank's work costs here.

    node_step_s(costs, work, ranks=2); sync(costs, work, Cluster(64, 2, parse("10gbit,50us"))).samples_per_s

The one idea: a step is computing (a fixed cost, a cost of each shard, a cost of each sample; slower when neighbours use
the memory too), fetching samples, updating (a part that ranks divide among them, a part that they do not), the wait for
the last of n ranks whose times vary, turns on a core that several share, and the network (`network.py`). All constants
are of this machine (`fit.py`).

Limits: nodes are like this machine and alike; nothing overlaps with the network; asynchronous training is its
throughput alone, what stale gradients cost in accuracy is not in it.
"""

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import final

from unisono.measure.prediction.network import ALGORITHMS, Network, all_reduce_s


@final
@dataclass(frozen=True)
class Costs:
    """Seconds of one rank of this machine."""

    call_s: float = 0.0
    """Computing: of a step, whatever it computes."""
    shard_s: float = 0.0
    """Of each shard."""
    sample_s: float = 0.0
    """Of each sample."""
    data_s: float = 0.0
    """Fetching: of each sample."""
    divided_s: float = 0.0
    """Updating: what ranks of a node divide among them."""
    update_s: float = 0.0
    """What they do not; and all else that a step takes."""
    replica_s: float = 0.0
    """Updating one replica, with `local`, and what goes with it."""
    crowding: float = 0.0
    """By what share computing is slower for each further core of the node that is busy."""
    jitter_s: float = 0.0
    """The standard deviation of a rank's step."""
    turn_s: float = 0.0
    """Ranks that share a core take turns: what that costs a step for each rank beyond the first on a core."""
    cores: int = 1


@final
@dataclass(frozen=True)
class Work:
    """What is trained."""

    batch: int
    """Of all ranks together."""
    shards: int
    nbytes: int
    """Of the parameters."""
    samples: int
    """Of an epoch."""
    threads: int = 1


@final
@dataclass(frozen=True)
class Cluster:
    """Where."""

    nodes: int
    ranks: int
    """Of each node."""
    network: Network

    @property
    def world(self) -> int:
        return self.nodes * self.ranks


@final
@dataclass(frozen=True)
class Speed:
    """What comes of it."""

    samples_per_s: float
    step_s: float
    network_share: float
    algorithm: str = ""


def node_step_s(costs: Costs, work: Work, ranks: int) -> float:
    """A step of `sync` on one node, in shared memory."""
    return _rank_s(costs, work, ranks, ranks) + last_of(ranks, costs.jitter_s)


def _rank_s(costs: Costs, work: Work, world: int, on_node: int) -> float:
    """A rank's own work in a step, if there are `on_node` of them on its node."""
    count = math.ceil(work.shards / world)
    samples = count * work.batch / work.shards
    busy = min(on_node * work.threads, costs.cores)
    computing = costs.call_s + costs.shard_s * count + costs.sample_s * samples
    own = computing * (1 + costs.crowding * (busy - 1)) + costs.data_s * samples
    own += costs.update_s + costs.divided_s / on_node
    on_core = max(1.0, on_node * work.threads / costs.cores)
    return own * on_core + costs.turn_s * (on_core - 1)


def last_of(count: int, deviation_s: float) -> float:
    """By how much the last of so many comes after their mean, if their times are normal (Blom's approximation)."""
    return 0.0 if count < 2 else deviation_s * NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


def sync(costs: Costs, work: Work, cluster: Cluster, algorithm: str = "") -> Speed:
    """Synchronous training; with the all-reduce that is fastest there, if none is named."""
    own = _rank_s(costs, work, cluster.world, cluster.ranks) + last_of(cluster.world, costs.jitter_s)
    times = {
        name: all_reduce_s(name, cluster.nodes, work.nbytes, cluster.network)
        for name in ([algorithm] if algorithm else ALGORITHMS)
    }
    name = min(times, key=lambda key: times[key])
    step_s = own + times[name]
    return Speed(work.batch / step_s, step_s, times[name] / step_s, name if cluster.nodes > 1 else "arena")


def local(costs: Costs, work: Work, cluster: Cluster, every: int) -> Speed:
    """Replicas, one a shard, averaged every so many steps: each computes its own step and updates all parameters."""
    updates_s = math.ceil(work.shards / cluster.world) * costs.replica_s
    alone = replace(costs, call_s=0.0, shard_s=costs.call_s + costs.shard_s, divided_s=0.0, update_s=updates_s)
    own = _rank_s(alone, work, cluster.world, cluster.ranks)
    own += last_of(cluster.world, costs.jitter_s) / math.sqrt(every)
    met = sync(costs, work, cluster)
    exchange_s = met.network_share * met.step_s / every
    step_s = own + exchange_s
    return Speed(work.batch / step_s, step_s, exchange_s / step_s, met.algorithm)


def asynchronous(costs: Costs, work: Work, cluster: Cluster, masters: int) -> Speed | None:
    """Workers that push and pull by themselves, as fast as they, or the masters' links, can; None without a worker."""
    workers = cluster.world - masters
    if workers < 1:
        return None
    push = work.batch / cluster.world
    link = cluster.network.bytes_per_s if cluster.nodes > 1 else math.inf
    latency_s = cluster.network.latency_s if cluster.nodes > 1 else 0.0
    computing = _rank_s(costs, replace(work, batch=math.ceil(push), shards=1), 1, cluster.ranks) - costs.divided_s
    moving = 2 * latency_s + 2 * work.nbytes * min(cluster.ranks, workers) / link
    busy = (work.nbytes / link + costs.divided_s) / masters  # pushes come while parameters go: links work both ways
    cycle_s = max((computing + moving) / workers, busy)
    return Speed(push / cycle_s, cycle_s, moving / (computing + moving))
