"""What is special to MPI, in worlds of 3 ranks; the rest is in tests/conformance."""

import subprocess

from support.needs import needs_mpi
from support.paths import IMPORTS, worker
from unisono.environment.os_environ import mpi_environment
from unisono.launch.launcher_commands import mpirun

pytestmark = needs_mpi


def start(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = mpirun(3, [*worker("mpi_backend"), *arguments])
    return subprocess.run(command, env=environment | IMPORTS, capture_output=True, text=True, timeout=100, check=False)


def test_long_arrays_go_in_pieces_and_unchecked_collectives_give_the_same():
    ended = start(mpi_environment())
    assert (ended.returncode, ended.stdout) == (0, "PASSED\n" * 3), ended.stderr


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
