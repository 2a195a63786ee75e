"""Command lines that start other interpreters and launchers, and a check that ranks find an MPI library.

    mpirun(2, python("-m", "unisono.measure.allreduce_bench_worker", "{}"))
    mpi_problem(["mpirun", "-n", "1"])               # "" or "cannot load MPI library"; without arguments: under srun

The one idea: an interpreter that we start imports from the same places as this one. `python -m` and `python -c` put the
working directory first, where a file named numpy.py would hide NumPy. Whether mpi4py finds its library is tested in a
process that is started as ranks would be: mpirun may tell its ranks where the library is, and srun does not.

Limits: `mpi_problem` loads MPI without initialising it, on this machine and in this environment; ranks that find their
library may still fail to connect.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from unisono.environment.os_environ import mpi_environment, untranslated
from unisono.errors import UserError
from unisono.optional_packages import how_to_install


def python(*arguments: str) -> list[str]:
    """This interpreter with these arguments."""
    return [sys.executable, *(["-P"] if imports_safely() else []), *arguments]


def user_script(*command: str) -> list[str]:
    """This interpreter with a program of the user's, which imports from its own directory; its lines come at once."""
    return [sys.executable, "-u", *command]


def imports_safely() -> bool:
    """Whether nothing is imported from the working directory, as in the command `unisono`; in `python -m` it is."""
    try:
        here = os.getcwd()
    except OSError:  # removed
        return True
    return not {"", here}.intersection(sys.path)


def mpirun(ranks: int, command: list[str]) -> list[str]:
    """`command` on `ranks` ranks of this machine, on as many cores as it has."""
    program = find_program("mpirun")
    if program is None:
        raise UserError(
            "mpirun is not installed",
            hint=f"{how_to_install('mpi')} brings one",
        )
    # Not bound: with more ranks than cores a bound rank would wait for one core while another is free.
    flags = ["--bind-to", "none", "--oversubscribe"] if is_open_mpi(program) else []
    return [program, "-n", str(ranks), *flags, *command]


def find_program(name: str) -> str | None:
    """The program beside this interpreter (a virtual environment need not be active), else the one on PATH."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)


def is_open_mpi(program: str) -> bool:
    """Whether an mpirun is that of Open MPI."""
    answer = subprocess.run(
        [program, "--version"],
        env=untranslated(),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=30,
        check=False,
    )
    return "Open MPI" in answer.stdout or "open-mpi" in answer.stdout


PATIENCE_S = 20.0
_LOOK = """
import sys
try:
    import mpi4py
    mpi4py.rc.initialize = False
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:
    sys.exit(str(error).splitlines()[0])
"""


def mpi_problem(launcher: Sequence[str] = ()) -> str:
    """Why a process that `launcher` starts cannot load an MPI library; empty if it can."""
    command = [*launcher, *python("-c", _LOOK)]
    try:
        ended = subprocess.run(
            command,
            env=mpi_environment(),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {PATIENCE_S:g} s"
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    said = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    return "" if ended.returncode == 0 else next(iter(said), f"exit code {ended.returncode}")
