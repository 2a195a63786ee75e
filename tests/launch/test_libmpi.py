"""Whether an MPI library is found: a made-up mpi4py says so, and a real one that there is none."""

import pytest

from unisono.launch import commands
from unisono.launch.commands import mpi_problem


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    """Writes the module MPI of an mpi4py that goes before any other."""
    package = tmp_path / "mpi4py"
    package.mkdir()
    (package / "__init__.py").write_text("class rc:\n    initialize = True\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return package / "MPI.py"


def test_a_library_that_is_found_is_not_started(made_up):
    made_up.write_text("import mpi4py\nif mpi4py.rc.initialize: raise RuntimeError('it was started')\n")
    assert mpi_problem() == ""


@pytest.mark.parametrize("kind", ["RuntimeError", "ImportError"])
def test_the_reason_is_its_first_line(made_up, kind):
    made_up.write_text(f"raise {kind}('cannot load MPI library\\nlibmpi.so: no such file')\n")
    assert mpi_problem() == "cannot load MPI library"


def test_only_whom_the_launcher_tells_finds_it(made_up):
    made_up.write_text("import os\nif 'TOLD' not in os.environ: raise RuntimeError('who knows')\n")
    assert (mpi_problem(), mpi_problem(["env", "TOLD=1"])) == ("who knows", "")


def test_a_launcher_that_is_not_there_or_does_not_answer(made_up, monkeypatch):
    assert mpi_problem(["/nowhere/mpirun"]) == "/nowhere/mpirun: No such file or directory"
    monkeypatch.setattr(commands, "PATIENCE_S", 0.01)
    assert mpi_problem(["sh", "-c", "exec sleep 60"]) == "no answer within 0.01 s"


def test_the_real_one(monkeypatch):
    pytest.importorskip("mpi4py")
    monkeypatch.setenv("MPI4PY_LIBMPI", "/nowhere/libmpi.so")
    assert mpi_problem() == "cannot load MPI library"
