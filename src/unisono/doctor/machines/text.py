"""What `unisono doctor --nodes` says: findings, two matrices, one sentence; and the same as JSON. Text only.

print(report(visit)); print(json.dumps(record(visit)))
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from unisono import __version__
from unisono.doctor.machines.diagnosis import judge, nodes_of, sentence
from unisono.doctor.machines.link import Speed
from unisono.doctor.machines.pairwise_test import PairwiseResult
from unisono.doctor.text import line
from unisono.terminal import printable

WIDEST = 16
"""Ranks that a matrix has room for; of more, nodes are shown, and of more of these nothing: --json has them all."""
_NONE = "-"


def report(visit: PairwiseResult) -> str:
    """All of it, for a terminal."""
    findings = judge(visit)
    parts = ["\n".join(line(finding) for finding in findings)]
    parts += [matrix(visit, "latency, us (half a round trip)", lambda speed: speed.latency_s * 1e6, max)]
    parts += [matrix(visit, "bandwidth, MB/s (from the row to the column)", lambda speed: speed.bytes_per_s / 1e6, min)]
    return "\n\n".join([*(part for part in parts if part), sentence(visit, findings)])


def matrix(
    visit: PairwiseResult, title: str, show: Callable[[Speed], float], worst: Callable[[list[float]], float]
) -> str:
    """A row and a column for each rank, or each node if there are too many. worst: of the ranks of two nodes."""
    groups = {rank: [rank] for rank in range(visit.size)}
    if visit.size > WIDEST:
        groups = nodes_of(visit)
    if len(groups) > WIDEST or not visit.speeds:
        return ""
    noun = "rank" if visit.size <= WIDEST else "from rank"
    hosts = {first: printable(visit.facts[first]["host"]) if first in visit.facts else "" for first in groups}
    width = max(map(len, hosts.values()))
    lines = [title, f"{noun:>9}  {'':{width}}" + "".join(f"{first:>8}" for first in groups)]
    for first, ranks in groups.items():
        cells = []
        for others in groups.values():
            pairs = [(one, other) for one in ranks for other in others]
            values = [show(visit.speeds[pair]) for pair in pairs if pair in visit.speeds]
            cells.append(f"{_NONE:>8}" if not values else f"{_short(worst(values)):>8}")
        lines.append(f"{first:>9}  {hosts[first]:{width}}" + "".join(cells))
    return "\n".join(lines)


def record(visit: PairwiseResult) -> dict[str, Any]:
    """For programs, and for a bug report. Matrices have null where nothing was measured."""
    findings = judge(visit)
    ranks = range(visit.size)
    speeds = [[visit.speeds.get((one, other)) for other in ranks] for one in ranks]
    return {
        "unisono": __version__,
        "sentence": sentence(visit, findings),
        "transport": visit.transport,
        "silent": {str(rank): why for rank, why in visit.silent.items()},
        "failed": [[*pair, why] for pair, why in visit.failed.items()],
        "latency_s": [[speed and speed.latency_s for speed in row] for row in speeds],
        "bytes_per_s": [[speed and speed.bytes_per_s for speed in row] for row in speeds],
        "ranks": [visit.facts.get(rank) for rank in ranks],
        "findings": [asdict(finding) for finding in findings],
    }


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"
