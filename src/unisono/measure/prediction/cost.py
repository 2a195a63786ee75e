"""The cost model: what a step takes on so many nodes of so many ranks, and an all-reduce on a network that is not here.

    node_step_s(costs, work, ranks=2); sync(costs, work, Cluster(64, 2, parse("10gbit,50us"))).samples_per_s

    >>> round(all_reduce_s("ring", 4, 4_000_000, parse("10gbit,50us")), 6)
    0.0051

The one idea: a step is computing (a fixed cost, a cost of each shard, a cost of each sample; slower when neighbours use
the memory too), fetching samples, updating (a part that ranks divide among them, a part that they do not), the wait for
the last of n ranks whose times vary, turns on a core that several share, and the network. All constants are of this
machine (`fit.py`). The network is the alpha-beta model: a message of s bytes takes alpha + s beta; an algorithm is so
many messages one after the other, and so many bytes through each node's link. Every node has one link, in both
directions at once.

Limits: nodes are like this machine and alike; nothing overlaps with the network, which has no contention and no packets
(real networks are slower, seldom faster); asynchronous training is its throughput alone, without what stale gradients
cost in accuracy.
"""

import math
import re
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import final

from unisono.errors import UserError

ALGORITHMS = ("ring", "tree", "doubling", "halving", "naive")
_BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_HINT = "such as --network 10gbit,50us: bandwidth of a node's link, and latency"


@final
@dataclass(frozen=True)
class Network:
    """Between nodes."""

    name: str
    bytes_per_s: float
    latency_s: float


def parse(text: str) -> Network:
    """'10gbit,50us'; a `UserError` for what is none."""
    found = re.fullmatch(
        r"\s*([\d.]+)\s*([kmgt]bit)(?:/s|ps)?\s*,\s*([\d.]+)\s*(ns|us|ms|s)\s*", text.lower().replace("µ", "u")
    )
    try:
        if found is None:
            raise ValueError
        rate, latency = float(found[1]) * _BITS[found[2]] / 8, float(found[3]) * _SECONDS[found[4]]
    except ValueError:
        raise UserError(f"--network {text}: no bandwidth and latency", hint=_HINT) from None
    if rate <= 0:
        raise UserError(f"--network {text}: a bandwidth of 0", hint=_HINT)
    return Network(text.strip(), rate, latency)


def all_reduce_s(algorithm: str, nodes: int, nbytes: float, network: Network) -> float:
    """Seconds on `nodes` nodes, each with `nbytes`."""
    if nodes == 1:
        return 0.0
    rounds, volume = _path(algorithm, nodes)
    return rounds * network.latency_s + volume * nbytes / network.bytes_per_s


def _path(algorithm: str, nodes: int) -> tuple[float, float]:
    """(messages one after the other, times the vector that passes the busiest link in one direction)."""
    levels = math.ceil(math.log2(nodes))
    folded = 0 if nodes & (nodes - 1) == 0 else 2  # nodes too many for a power of two go first and come last
    whole = 2 ** math.floor(math.log2(nodes))
    if algorithm == "naive":
        return nodes - 1, nodes - 1
    if algorithm == "ring":
        return 2 * (nodes - 1), 2 * (nodes - 1) / nodes
    if algorithm == "tree":
        return 2 * levels, 2 * levels
    if algorithm == "doubling":
        return math.log2(whole) + folded, math.log2(whole) + folded
    return 2 * math.log2(whole) + folded, 2 * (whole - 1) / whole + folded


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
