"""What is special to torch.distributed; the rest is in tests/conformance."""

import signal
import subprocess
import sys

import pytest

from support.needs import needs_torch
from support.paths import IMPORTS, QUIET_END, worker
from support.ports import free_port
from unisono.environment.os_environ import child_environment

pytestmark = needs_torch

WORKER = worker("torch_backend")[1]
ENVIRONMENT = child_environment(threads=1) | IMPORTS


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: importing torch here would start threads in the process that other tests fork."""
    command = [sys.executable, *words]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=90, check=False)


def test_in_a_world_of_three():
    """Torch's default group, waits without checks, groups, and who does not connect."""
    ended = run("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3", WORKER)
    assert (ended.returncode, ended.stdout) == (0, "PASSED\n" * 3), ended.stderr[-4000:]


@pytest.mark.parametrize(("part", "code"), [("lose_a_rank", -signal.SIGKILL), ("take_leave", 0)])
def test_a_rank_that_leaves_is_noticed_at_once(part, code):
    """And those who noticed end well: no thread of gloo outlives the communicator."""
    address = f"127.0.0.1:{free_port()}"
    ranks = [
        subprocess.Popen(
            [sys.executable, QUIET_END, WORKER, str(rank), "2", address, part],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    told = [rank.communicate(timeout=60) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, code], told
    assert "PASSED" in told[0][0]


def test_whoever_takes_a_ranks_place_is_found_out():
    ended = run(WORKER, "stranger")
    assert (ended.returncode, ended.stdout) == (0, "PASSED\n"), ended.stderr


def test_what_cannot_be_connected_is_refused():
    ended = run(WORKER, "refusals")
    assert (ended.returncode, ended.stderr) == (0, ""), "torch has nothing to add"
