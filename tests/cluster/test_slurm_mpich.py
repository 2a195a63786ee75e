"""MPICH on a real SLURM: `srun --mpi=pmi2`. The library comes from the package registry, beside the Open MPI in use."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.needs import needs_mpi4py
from unisono.recipe import Recipe
from unisono.runs.lifecycle import run_recipe

FETCH_S = 60
TRIES, TRY_S = 3, 40
CUT_SHORT = "mpi/pmi2: value not properly terminated"
"""What SLURM's plugin says when it mistakes an address that MPICH tells it, before our code runs: now and then.
One task fails in MPI_Init then, and the other waits for it for ever."""
RECIPE = Recipe.from_options(epochs=1)
pytestmark = [
    needs_mpi4py,
    pytest.mark.timeout(240),
]


@pytest.fixture(scope="module")
def mpich(tmp_path_factory) -> str:
    """Its library, for mpi4py to load; the test is skipped where it cannot be had."""
    place = tmp_path_factory.mktemp("mpich")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--prefix", str(place), "mpich"]
    try:
        subprocess.run(pip, check=True, capture_output=True, timeout=FETCH_S)
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"MPICH cannot be had here: {error}")
    return str(next(Path(place).rglob("libmpi.so.12")))


def test_ranks_of_srun_on_two_nodes(mailbox, mpich, tmp_path):
    train = [sys.executable, "-m", "unisono", "train", "--epochs", "1", "--out", "run"]
    variables = {"MPI4PY_LIBMPI": mpich}
    srun = ["srun", "-N2", "-n2", "--mpi=pmi2", "timeout", str(TRY_S), *train]
    for _ in range(TRIES):
        told = mailbox.slurm.call(srun, cwd=mailbox.place, environment=variables)
        if not told.returncode or CUT_SHORT not in told.stderr:
            break
    assert told.returncode == 0, told.stderr
    alone = run_recipe(RECIPE.with_options(ranks=1, out=str(tmp_path / "alone")))
    summary = mailbox.summary("run")
    assert (summary["ranks"], summary["nodes"], summary["transport"]) == (2, 2, "mpi")
    assert summary["weights_sha256"] == alone["weights_sha256"]


def test_the_wrong_plugin_is_named(slurm, mpich, tmp_path):
    """Without one MPICH starts each task as a world of its own, and says nothing."""
    train = [sys.executable, "-m", "unisono", "train", "--epochs", "1"]
    told = slurm.call(["srun", "-n2", *train], cwd=tmp_path, environment={"MPI4PY_LIBMPI": mpich})
    assert told.returncode == 2
    assert "SLURM says 2 tasks, MPI says a world of 1" in told.stderr
    assert "HINT: this MPI is MPICH: start it with `srun --mpi=pmi2`, or with mpirun" in told.stderr
