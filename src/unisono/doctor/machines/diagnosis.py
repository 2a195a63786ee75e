"""Diagnosis: what a pairwise test found, as findings, two matrices and one plain sentence; as text or as JSON.

print(report(visit)); print(json.dumps(record(visit)))
for finding in judge(visit): print(line(finding))
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from unisono import __version__
from unisono.doctor.finding import Finding, line
from unisono.doctor.machines.facts import PACKAGES
from unisono.doctor.machines.link_measurement import Speed
from unisono.doctor.machines.pairwise_test import PairwiseResult
from unisono.report.run.outcome_and_advice import readable_s
from unisono.safe_print import printable
from unisono.training.consistency import differences_between

SLOW = 0.5
"""A pair with less than this share of the best bandwidth between nodes is worth a look."""
_NAMED = 4
"""More of a kind are counted, not named."""
WIDEST = 16
"""Ranks that a matrix has room for; of more, nodes are shown, and of more of these nothing: --json has them all."""
_NONE = "-"


def judge(visit: PairwiseResult) -> list[Finding]:
    """From who is there to how fast they are."""
    found = [_ranks(visit), *_silent(visit), *_versions(visit), _processors(visit), *_cores(visit), _pairs(visit)]
    return [*found, *_speeds(visit)]


def sentence(visit: PairwiseResult, findings: Iterable[Finding]) -> str:
    """How these nodes are for unisono."""
    statuses = {finding.name: finding.status for finding in findings}
    if visit.silent:
        named = listed([name_of(visit, rank) for rank in sorted(visit.silent)], "ranks")
        return f"Not everybody answers: {named} {'does' if len(visit.silent) == 1 else 'do'} not."
    if visit.failed:
        return f"Not all ranks reach each other: {_named_pairs(visit)} do not."
    nodes = len(set(visit.colours().values()))
    apart = _between(visit)
    worst = ""
    if apart:
        slowest, least = max(speed.latency_s for speed in apart), min(speed.bytes_per_s for speed in apart)
        worst = f", between nodes in {readable_s(slowest)} and with {readable_rate(least)} at worst"
    ranks = f"All {visit.size} ranks on {nodes} node{'s' if nodes > 1 else ''} reach each other"
    looked = [name for name, status in statuses.items() if status != "ok"]
    rest = f"; worth a look: {', '.join(looked)}" if looked else ""
    return f"{ranks} over {visit.transport}{worst}{rest}."


def readable_rate(bytes_per_s: float) -> str:
    """1.25e8 -> '125 MB/s'."""
    value = bytes_per_s / 1e6
    return f"{value:.1f} MB/s" if value < 10 else f"{value:.0f} MB/s"


def name_of(visit: PairwiseResult, rank: int) -> str:
    """'rank 3 (n2)'."""
    return f"rank {rank} ({visit.facts[rank]['host']})" if rank in visit.facts else f"rank {rank}"


def listed(names: list[str], noun: str) -> str:
    """The first few, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more {noun}" if more > 0 else "")


def nodes_of(visit: PairwiseResult) -> dict[int, list[int]]:
    """The ranks of each node that answered, by its lowest."""
    found: dict[int, list[int]] = {}
    for rank, colour in visit.colours().items():
        found.setdefault(colour, []).append(rank)
    return found


def _ranks(visit: PairwiseResult) -> Finding:
    places = []
    for ranks in nodes_of(visit).values():
        facts = visit.facts[ranks[0]]
        where = f"{facts['host']} ({facts['address']})" if facts["address"] else facts["host"]
        places.append(f"{', '.join(map(str, ranks))} on {where}")
    told = f"{visit.size} over {visit.transport}: {listed(places, 'nodes')}"
    return Finding("ranks", "ok", told, facts={"size": visit.size, "transport": visit.transport})


def _silent(visit: PairwiseResult) -> list[Finding]:
    fix = "see whether its process lives, and what its node and the launcher say of it"
    return [Finding(name_of(visit, rank), "failed", why, fix) for rank, why in sorted(visit.silent.items())]


def _versions(visit: PairwiseResult) -> list[Finding]:
    """All ranks must have one version of unisono and of Python; if other versions differ, bits may differ."""
    found, alike = [], []
    for kind in ("unisono", "Python", *PACKAGES, "MPI"):
        values = {rank: str((facts | facts["packages"])[kind]) for rank, facts in visit.facts.items()}
        if len(set(values.values())) > 1:
            refused = kind in ("unisono", "Python")
            fix = "install the same on every node" + (": runs refuse this" if refused else "; bits may differ")
            told = f"{kind}: {_sides(visit, values)}"
            found.append(Finding(f"versions: {kind}", "failed" if refused else "warning", told, fix, {"values": told}))
        elif values[0]:
            alike.append(values[0] if kind == "MPI" else f"{kind} {values[0]}")
    return [*found, Finding("versions", "ok", f"{', '.join(alike)} everywhere")]


def _sides(visit: PairwiseResult, values: Mapping[int, str]) -> str:
    groups: dict[str, list[str]] = {}
    for rank, value in values.items():
        groups.setdefault(value or "none", []).append(visit.facts[rank]["host"])
    return "; ".join(f"{value} on {listed(list(dict.fromkeys(hosts)), 'nodes')}" for value, hosts in groups.items())


def _processors(visit: PairwiseResult) -> Finding:
    firsts = [visit.facts[ranks[0]] for ranks in nodes_of(visit).values()]
    told = differences_between(firsts, "node")
    if told:
        fix = "ask for nodes of one kind (sbatch --constraint), or do without the same bits"
        return Finding("processors", "warning", listed(told, "nodes"), fix, {"unlike": told})
    return Finding("processors", "ok", f"{firsts[0]['fingerprint']['cpu']} on every node")


def _cores(visit: PairwiseResult) -> list[Finding]:
    """Ranks against the cores that they may use; a node at a time, for only those that have too few."""
    found, fits = [], []
    for ranks in nodes_of(visit).values():
        mine = [visit.facts[rank] for rank in ranks]
        # Launchers may bind every rank to cores of its own, or all to one.
        cores = min(len({core for facts in mine for core in facts["affinity"]}), sum(facts["cores"] for facts in mine))
        fits.append((len(ranks), cores))
        if len(ranks) > cores:
            told = f"{len(ranks)} ranks on {mine[0]['host']} may use {cores} core{'s' if cores > 1 else ''} together"
            fix = "start fewer ranks, or ask for more cores: srun -c, mpirun --bind-to none"
            found.append(Finding("cores", "warning", told, fix, {"ranks": len(ranks), "cores": cores}))
    if found:
        return found
    threads = min(cores // ranks for ranks, cores in fits)
    kinds = " or ".join(f"{ranks} on {cores}" for ranks, cores in sorted(set(fits)))
    return [Finding("cores", "ok", f"ranks on cores of a node: {kinds}; up to --threads {threads}")]


def _pairs(visit: PairwiseResult) -> Finding:
    living = len(visit.facts) - len(visit.silent.keys() & visit.facts.keys())
    pairs = living * (living - 1) // 2
    if visit.failed:
        reasons = listed(sorted(set(visit.failed.values())), "reasons")
        told = f"{len(visit.failed)} of {pairs} pairs cannot exchange messages: {_named_pairs(visit)}: {reasons}"
        fix = "a firewall, or another network than you think? --interface names one (mpirun: docs/several-machines.md)"
        return Finding("pairs", "failed", told, fix, {"failed": [list(pair) for pair in visit.failed]})
    return Finding("pairs", "ok", f"all {pairs} exchange messages")


def _named_pairs(visit: PairwiseResult) -> str:
    return listed(
        [f"{name_of(visit, one)} and {name_of(visit, other)}" for one, other in sorted(visit.failed)], "pairs"
    )


def _between(visit: PairwiseResult, *, same: bool = False) -> list[Speed]:
    """Speeds between nodes, or within them."""
    colours = visit.colours()
    return [speed for (one, other), speed in visit.speeds.items() if (colours[one] == colours[other]) == same]


def _speeds(visit: PairwiseResult) -> list[Finding]:
    parts: dict[str, list[str]] = {"latency": [], "bandwidth": []}
    for words, same in (("between nodes", False), ("within a node", True)):
        if speeds := _between(visit, same=same):
            times, rates = [speed.latency_s for speed in speeds], [speed.bytes_per_s for speed in speeds]
            parts["latency"].append(f"{readable_s(min(times))} to {readable_s(max(times))} {words}")
            parts["bandwidth"].append(f"{readable_rate(min(rates))} to {readable_rate(max(rates))} {words}")
    found = [Finding(name, "ok", "; ".join(told)) for name, told in parts.items() if told]
    if found and (slow := _slow_pairs(visit)):
        told, fix = found[-1].told, "look at the cables, switches and interfaces on the way between these"
        found[-1] = Finding("bandwidth", "warning", f"{told}; much less than elsewhere: {listed(slow, 'pairs')}", fix)
    return found


def _slow_pairs(visit: PairwiseResult) -> list[str]:
    """Pairs of nodes, by their fastest ranks."""
    colours = visit.colours()
    best: dict[tuple[int, int], float] = {}
    for (one, other), speed in visit.speeds.items():
        low, high = sorted((colours[one], colours[other]))
        if low != high:
            best[low, high] = max(best.get((low, high), 0.0), speed.bytes_per_s)
    hosts = {colour: visit.facts[colour]["host"] for colour in colours.values()}
    return [
        f"{hosts[one]} and {hosts[other]} ({readable_rate(rate)})"
        for (one, other), rate in sorted(best.items())
        if rate < SLOW * max(best.values())
    ]


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
    """All of it as JSON, for a bug report. Matrices have null where nothing was measured."""
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
