"""`unisono doctor --nodes` on several machines: a link that is slow, one that is cut, a machine that falls silent."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.cluster.namespaces import REASON, Net, ends
from support.needs import needs_torch
from unisono.environment.os_environ import child_environment
from unisono.launch.launcher_commands import find_program

pytestmark = [pytest.mark.skipif(bool(REASON), reason=REASON), pytest.mark.timeout(200)]
DOCTOR = [sys.executable, "-m", "unisono", "doctor", "--nodes", "--json"]


def by_hand(net: Net, folder: Path, *more: str) -> list[subprocess.Popen[str]]:
    """One on each machine."""
    where = ["--num-nodes", str(len(net.names)), "--main-address", net.address(0), *more]
    return [
        net.start(node, [*DOCTOR, *where, "--node-id", str(node)], child_environment(1), folder)
        for node in range(len(net.names))
    ]


@needs_torch
def test_a_slow_link_shows_in_the_matrix(tmp_path):
    with Net(3) as net:
        net.slow("20mbit", node=2)
        told = ends(by_hand(net, tmp_path))
    assert [code for code, _, _ in told] == [0, 0, 0], told
    assert [said for _, said, _ in told[1:]] == ["", ""], "the first one speaks"
    found = json.loads(told[0][1])
    rates = found["bytes_per_s"]
    assert max(rates[0][2], rates[1][2], rates[2][0]) < 0.5 * min(rates[0][1], rates[1][0]), rates
    assert "node0 and node2" in next(entry["told"] for entry in found["findings"] if entry["name"] == "bandwidth")
    assert [facts["address"] for facts in found["ranks"]] == [net.address(node) for node in range(3)]


@needs_torch
def test_two_machines_that_do_not_reach_each_other_are_named(tmp_path):
    with Net(3) as net:
        net.forbid(1, 2)
        told = ends(by_hand(net, tmp_path))
    found = json.loads(told[0][1])
    assert found["sentence"] == "Not all ranks reach each other: rank 1 (node1) and rank 2 (node2) do not."
    assert [code for code, _, _ in told] == [1, 0, 0], told
    assert found["bytes_per_s"][0][1] > 0
    assert found["bytes_per_s"][2][0] > 0


@pytest.mark.skipif(not find_spec("mpi4py") or find_program("mpirun") is None, reason="mpi4py or mpirun is missing")
def test_over_mpi(tmp_path):
    with Net(2) as net:
        net.slow("100mbit")
        ((code, said, err),) = ends([net.mpirun((2, 2), DOCTOR, child_environment(1), tmp_path)])
    assert code == 0, err
    found = json.loads(said)
    assert found["sentence"].startswith("All 4 ranks on 2 nodes reach each other over mpi, between nodes in ")
    rates = found["bytes_per_s"]
    assert max(rates[0][2], rates[1][3], rates[3][0]) < min(rates[0][1], rates[2][3]), rates
