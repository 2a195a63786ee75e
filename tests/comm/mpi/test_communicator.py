"""What is special to MPI; the rest is in tests/conformance. One world of 3 ranks runs all checks."""

import subprocess
from functools import cache

import pytest

from support.comm.backend_checks import CHECKS, passed_everywhere
from support.needs import needs_mpi
from support.paths import IMPORTS, worker
from unisono.environment.variables import mpi_environment
from unisono.launch.commands import mpirun

pytestmark = needs_mpi

EXTRA = ["half_precision_is_refused", "long_arrays_go_in_pieces", "unchecked_gives_the_same"]


def start(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = mpirun(3, [*worker("mpi_backend"), *arguments])
    return subprocess.run(command, env=environment | IMPORTS, capture_output=True, text=True, timeout=100, check=False)


@cache
def world_of_three() -> subprocess.CompletedProcess[str]:
    return start(mpi_environment())


@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS] + EXTRA)
def test_on_three_ranks(name):
    ended = world_of_three()
    assert passed_everywhere(name, ended.stdout), ended.stdout + ended.stderr[-4000:]


def test_the_world_ends_well():
    assert world_of_three().returncode == 0, world_of_three().stderr


def test_a_time_out_that_was_handled_does_not_hang_at_the_end(killable_mpi):
    assert start(killable_mpi, "handled").returncode != 0


def test_a_rank_that_raises_ends_the_others_at_once(killable_mpi):
    ended = start(killable_mpi, "raises")  # far sooner than the 60 s that they would wait for it
    assert ended.returncode == 1
    assert "ValueError: rank one had enough" in ended.stderr
    assert "did not arrive" not in ended.stderr


def test_a_time_out_that_nobody_handles_ends_the_rank_that_hangs(killable_mpi):
    ended = start(killable_mpi, "hang")
    assert ended.returncode == 1
    assert "rank 2 did not arrive" in ended.stderr
