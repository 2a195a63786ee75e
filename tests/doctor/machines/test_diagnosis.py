"""What is said of a visit: of unlike nodes, of slow and missing links, of cores; and how it is shown."""

import json

import pytest

from unisono.doctor.machines.diagnosis import judge, matrix, record, report, sentence
from unisono.doctor.machines.facts import facts_here
from unisono.doctor.machines.link_measurement import Speed
from unisono.doctor.machines.pairwise_test import PairwiseResult

WITHIN, BETWEEN = Speed(2e-6, 4e9), Speed(5e-4, 1.1e8)


def made(*counts: int, **changed: object) -> PairwiseResult:
    """So many ranks on each node; changed: facts of the last rank."""
    nodes = [node for node, count in enumerate(counts) for _ in range(count)]
    facts = {
        rank: facts_here("gloo", f"10.0.0.{node}")
        | {"node": str(node), "host": f"n{node}", "affinity": [0, 1], "cores": 2}
        for rank, node in enumerate(nodes)
    }
    facts[len(nodes) - 1] |= changed
    speeds = {
        (one, other): WITHIN if nodes[one] == nodes[other] else BETWEEN
        for one in range(len(nodes))
        for other in range(len(nodes))
        if one != other
    }
    return PairwiseResult("gloo", len(nodes), facts, speeds=speeds)


def statuses(visit: PairwiseResult) -> dict[str, str]:
    return {finding.name: finding.status for finding in judge(visit)}


def test_all_is_well():
    visit = made(2, 2)
    assert set(statuses(visit).values()) == {"ok"}
    told = sentence(visit, judge(visit))
    assert (
        told == "All 4 ranks on 2 nodes reach each other over gloo, between nodes in 500 us and with 110 MB/s at worst."
    )
    lines = report(visit).splitlines()
    assert lines[0] == "ok       ranks             4 over gloo: 0, 1 on n0 (10.0.0.0), 2, 3 on n1 (10.0.0.1)"
    assert "ok       cores             ranks on cores of a node: 2 on 2; up to --threads 1" in lines
    assert lines[-1] == told


def test_matrices_show_every_pair():
    shown = matrix(made(1, 2), "bandwidth, MB/s", lambda speed: speed.bytes_per_s / 1e6, min)
    assert [line.split() for line in shown.splitlines()] == [
        ["bandwidth,", "MB/s"],
        ["rank", "0", "1", "2"],
        ["0", "n0", "-", "110", "110"],
        ["1", "n1", "110", "-", "4000"],
        ["2", "n1", "110", "4000", "-"],
    ]


def test_of_many_ranks_nodes_are_shown_by_their_worst():
    visit = made(9, 9)
    visit.speeds[3, 12] = Speed(1e-3, 1e6)
    rates = matrix(visit, "bandwidth", lambda speed: speed.bytes_per_s / 1e6, min).splitlines()
    assert [line.split() for line in rates[2:]] == [["0", "n0", "4000", "1.0"], ["9", "n1", "110", "4000"]]
    assert matrix(made(*[2] * 17), "bandwidth", lambda speed: speed.bytes_per_s, min) == ""


def test_a_slow_link_is_worth_a_look():
    visit = made(1, 1, 1)
    for pair in [(0, 2), (2, 0)]:
        visit.speeds[pair] = Speed(5e-4, 1e7)
    (finding,) = [finding for finding in judge(visit) if finding.status != "ok"]
    assert (finding.name, finding.status) == ("bandwidth", "warning")
    assert "much less than elsewhere: n0 and n2 (10 MB/s)" in finding.told
    assert sentence(visit, judge(visit)).endswith("; worth a look: bandwidth.")


def test_who_is_silent_is_named_first():
    visit = made(2, 2)
    visit.silent[3] = "did not answer within 10 s"
    assert statuses(visit)["rank 3 (n1)"] == "failed"
    assert sentence(visit, judge(visit)) == "Not everybody answers: rank 3 (n1) does not."


def test_pairs_that_fail_are_named():
    visit = made(1, 1, 1)
    visit.failed[1, 2] = "no answer within 5 s"
    for pair in [(1, 2), (2, 1)]:
        del visit.speeds[pair]
    assert statuses(visit)["pairs"] == "failed"
    assert sentence(visit, judge(visit)) == "Not all ranks reach each other: rank 1 (n1) and rank 2 (n2) do not."
    assert "1 of 3 pairs cannot exchange messages" in report(visit)
    found = json.loads(json.dumps(record(visit)))
    assert (found["failed"], found["bytes_per_s"][1]) == ([[1, 2, "no answer within 5 s"]], [1.1e8, None, None])


@pytest.mark.parametrize(
    ("changed", "name", "status", "told"),
    [
        ({"unisono": "9.9"}, "versions: unisono", "failed", "9.9 on n1"),
        ({"Python": "2.7"}, "versions: Python", "failed", "2.7 on n1"),
        ({"packages": {"numpy": "1.0", "torch": "", "mpi4py": ""}}, "versions: numpy", "warning", "1.0 on n1"),
        ({"MPI": "Open MPI v4"}, "versions: MPI", "warning", "Open MPI v4 on n1"),
        ({"fingerprint": facts_here("", "")["fingerprint"] | {"cpu": "Z80"}}, "processors", "warning", "Z80 on node 1"),
        ({"affinity": [0]}, "cores", "ok", "1 on 1 or 2 on 2"),
    ],
)
def test_nodes_that_differ(changed, name, status, told):
    visit = made(2, 1, **changed)
    found = {finding.name: finding for finding in judge(visit)}
    assert found[name].status == status
    assert told in found[name].told


def test_ranks_that_were_bound_to_one_core():
    visit = made(2, 2)
    for rank in (2, 3):
        visit.facts[rank]["affinity"] = [0]
    (finding,) = [finding for finding in judge(visit) if finding.name == "cores"]
    assert (finding.status, finding.told) == ("warning", "2 ranks on n1 may use 1 core together")
