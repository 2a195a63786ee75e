"""Interpreters that we start import from where this one does; whether an MPI library is found."""

import re
import subprocess
import sys

import pytest

from support.commands import put_command
from unisono.launch import launcher_commands
from unisono.launch.launcher_commands import is_open_mpi, mpi_problem, python
from unisono.launch.slurm.options import LAUNCHERS, JobOptions
from unisono.launch.slurm.script import Script, write_script
from unisono.launch.slurm.steps import Layout, make_step


@pytest.fixture
def shadowed(tmp_path, monkeypatch) -> None:
    """The working directory has a module of the name of one that every interpreter can import."""
    (tmp_path / "colorsys.py").write_text("print('a stranger')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])


def said(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.parametrize("words", [("-c", "import colorsys"), ("-m", "colorsys")])
def test_modules_are_not_taken_from_the_working_directory(words, shadowed):
    assert said(python(*words)) == ""


@pytest.mark.parametrize("here", ["", "the whole path"])
def test_they_are_where_this_process_takes_them_from_there(here, shadowed, tmp_path, monkeypatch):
    """As in `python -m unisono`."""
    monkeypatch.setattr(sys, "path", [here and str(tmp_path), *sys.path])
    assert said(python("-c", "import colorsys")) == "a stranger\n"


def test_a_removed_working_directory_is_no_place_to_import_from(shadowed, tmp_path):
    (tmp_path / "colorsys.py").unlink()
    tmp_path.rmdir()
    assert "-P" in python("-c", "")


@pytest.mark.parametrize("launcher", LAUNCHERS[1:])
@pytest.mark.parametrize("safely", [True, False])
def test_a_job_imports_as_the_command_that_made_it(launcher, safely, monkeypatch, shadowed):
    """And what its ranks start, such as python tools/prep.py, as it does anywhere: no variable is set for that."""
    if not safely:
        monkeypatch.setattr(sys, "path", ["", *sys.path])
    layout = Layout(nodes=1, ranks=3, threads=1)
    text = write_script(Script(JobOptions(), layout, make_step(launcher, layout, ["r2"], "none"), "", "run"))
    assert "PYTHONSAFEPATH" not in text
    started = re.findall(r'("\$(?:python|0)"(?: -P)?)(?: -u)? -m', text)
    assert len(started) == (3 if launcher in ("torchrun", "accelerate") else 2)
    assert all(("-P" in words) == safely for words in started)


def test_mpirun_is_asked_for_its_version_without_the_secret(tmp_path, monkeypatch):
    program = put_command(tmp_path, "mpirun", '[ -n "$UNISONO_SECRET" ] || echo "mpirun (Open MPI) 5.0.10"')
    monkeypatch.setenv("UNISONO_SECRET", "seventeen letters")
    assert is_open_mpi(str(program))


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
    monkeypatch.setattr(launcher_commands, "PATIENCE_S", 0.01)
    assert mpi_problem(["sh", "-c", "exec sleep 60"]) == "no answer within 0.01 s"


def test_the_real_one(monkeypatch):
    pytest.importorskip("mpi4py")
    monkeypatch.setenv("MPI4PY_LIBMPI", "/nowhere/libmpi.so")
    assert mpi_problem() == "cannot load MPI library"
