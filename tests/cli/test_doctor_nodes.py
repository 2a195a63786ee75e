"""`unisono doctor --nodes` under real launchers, on one machine; tests/cluster has several."""

import json
import subprocess
import sys

from support.cli.train_command import UNISONO
from support.needs import needs_mpi, needs_torch
from support.ports import free_port
from unisono.environment.os_environ import child_environment, mpi_environment
from unisono.launch.launcher_commands import mpirun

DOCTOR = [*UNISONO, "doctor", "--nodes"]


UNHURRIED = """
from unisono.doctor.machines import pairwise_test as visit
visit.PATIENCE_S = visit._ARRIVING_S = visit._TURN_S = 30.0
from unisono.cli.main import main
main()
"""
"""For a busy machine."""


def call(command: list[str], environment: dict[str, str], **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False, **more)  # type: ignore[call-overload,no-any-return]


@needs_mpi
def test_under_mpirun():
    ended = call(mpirun(3, [sys.executable, "-c", UNHURRIED, "doctor", "--nodes", "--json"]), mpi_environment())
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["sentence"].startswith("All 3 ranks on 1 node reach each other over mpi")
    assert [[value is None for value in row] for row in found["bytes_per_s"]] == [
        [one == other for other in range(3)] for one in range(3)
    ]
    assert found["ranks"][2]["MPI"].split()[0] in ("Open", "MPICH")


STOPPED = """
import os, signal, sys
from unisono.doctor.machines import pairwise_test as visit
if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    visit.follow = lambda *given: os.kill(os.getpid(), signal.SIGSTOP)
visit.PATIENCE_S, visit._ARRIVING_S = 1.0, 2.0
from unisono.cli.main import main
main()
"""


@needs_mpi
def test_a_rank_that_is_stopped_is_named(killable_mpi):
    """MPI notices nothing, and could not end."""
    ended = call(mpirun(2, [sys.executable, "-c", STOPPED, "doctor", "--nodes"]), killable_mpi)
    assert ended.returncode == 1, ended.stderr
    assert "Not everybody answers: rank 1 does not." in ended.stdout
    assert "FAILED   rank 1            did not answer within 2 s" in ended.stdout


@needs_torch
def test_under_torchrun():
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    ended = call([*torchrun, sys.executable, "-c", UNHURRIED, "doctor", "--nodes"], child_environment(1))
    assert ended.returncode == 0, ended.stderr
    assert "All 2 ranks on 1 node reach each other over gloo" in ended.stdout
    assert "latency, us (half a round trip)" in ended.stdout


@needs_torch
def test_whoever_does_not_come_is_named():
    where = ["--main-address", "127.0.0.1", "--main-port", str(free_port())]
    by_hand = ["--num-nodes", "2", "--node-id", "0", *where]
    ended = call([*DOCTOR, *by_hand, "--join-timeout", "1"], child_environment(1))
    assert ended.returncode == 2
    assert "node 0: after 1 s node 1 of 2 had not come; here: node 0 on " in ended.stderr


def test_a_transport_that_is_none():
    ended = call([*DOCTOR, "--transport", "udp"], child_environment(1) | {"RANK": "0", "WORLD_SIZE": "2"})
    assert ended.returncode == 2
    assert "unknown transport 'udp'; there are: auto, mpi, gloo" in ended.stderr
