"""A network that need not be here, and how long an all-reduce takes on it: latency and bandwidth, by algorithm.

>>> network = parse("10gbit,50us"); round(all_reduce_s("ring", 4, 4_000_000, network), 6)
0.0051

The one idea: the alpha-beta model. A message of s bytes takes alpha + s beta; an algorithm is so many messages one
after the other, and so many bytes through each node's link. Every node has one link, in both directions at once.

Limits: no contention in the switch, no packets, no protocol. Real networks are slower, seldom faster.
"""

import math
import re
from dataclasses import dataclass
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
