"""A rank of mpirun that fails alone: the job ends with what it has to say; the others do not wait for it."""

import signal
import subprocess
from pathlib import Path

import pytest

from support.needs import needs_mpi
from support.paths import worker
from unisono.launch.launcher_commands import mpirun

pytestmark = needs_mpi
COMMAND = [*worker("failing_rank"), "train", "--epochs", "2"]
STRATEGIES = [
    pytest.param(["--strategy", "async", "--optimizer", "sgd", "--batch-size", "16"], id="async"),
    pytest.param(["--allreduce", "ring", "--transport", "mpi"], id="replicas"),
]


def run(
    place: Path, environment: dict[str, str], options: list[str], failure: str = "OverflowError"
) -> tuple[int, str]:
    """The exit code, and what was said; again if mpirun itself crashes while it ends the ranks, as it does rarely."""
    code, said = -signal.SIGSEGV, ""
    for _ in range(3):
        if code == -signal.SIGSEGV:
            code, said = run_once(place, environment | {"FAILURE": failure}, options)
    return code, said


def run_once(place: Path, environment: dict[str, str], options: list[str]) -> tuple[int, str]:
    job = subprocess.Popen(
        mpirun(3, [*COMMAND, *options]), cwd=place, env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        _, said = job.communicate(timeout=90)  # without it MPI_Finalize waits for ever
    finally:
        if job.poll() is None:
            job.terminate()  # mpirun ends its ranks
            job.communicate(timeout=20)
    return job.returncode, said


@pytest.mark.parametrize("options", STRATEGIES)
def test_the_others_do_not_wait_for_it(tmp_path, options, killable_mpi):
    code, said = run(tmp_path, killable_mpi, options)
    assert code not in (0, 75)
    assert "OverflowError: the fifth batch is no good" in said


@pytest.mark.parametrize(
    ("failure", "code", "words"),
    [("UserError", 2, "the fifth batch is no good"), ("exit", 1, "rank 1 left the run by sys.exit(0)")],
)
def test_nor_where_all_might_have_failed_alike_or_it_leaves_by_itself(tmp_path, failure, code, words, killable_mpi):
    found, said = run(tmp_path, killable_mpi, [], failure)
    assert found == code, said
    assert words in said
