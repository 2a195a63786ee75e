"""What is special to torch.distributed; the rest is in tests/conformance. One world of 3 ranks runs all checks."""

import signal
import subprocess
import sys
from functools import cache

import pytest

from support.comm.backend_checks import CHECKS, passed_everywhere
from support.needs import needs_torch
from support.paths import IMPORTS, QUIET_END, worker
from support.ports import free_port
from unisono.environment.variables import child_environment

pytestmark = needs_torch

WORKER = worker("torch_backend")[1]
ENVIRONMENT = child_environment(threads=1) | IMPORTS
EXTRA = [
    "half_precision_is_reduced",
    "torchs_default_group_is_left_alone",
    "without_checks_a_wait_ends_all_the_same",
    "connecting_names_who_is_missing",
    "groups_have_as_long_to_connect_as_the_world_had",
]


@cache
def world_of_three() -> subprocess.CompletedProcess[str]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
    return subprocess.run([*torchrun, WORKER], env=ENVIRONMENT, capture_output=True, text=True, timeout=90, check=False)


@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS] + EXTRA)
def test_on_three_ranks(name):
    ended = world_of_three()
    assert passed_everywhere(name, ended.stdout), ended.stdout + ended.stderr[-4000:]


def test_the_world_ends_well():
    assert world_of_three().returncode == 0, world_of_three().stderr


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
    words = [sys.executable, WORKER, "stranger"]
    ended = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("PASSED"), ended.stdout


def test_what_cannot_be_connected_is_refused():
    """In a process of its own: importing torch here would start threads in the process that other tests fork."""
    words = [sys.executable, WORKER, "refusals"]
    ended = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, ""), "torch has nothing to add"
