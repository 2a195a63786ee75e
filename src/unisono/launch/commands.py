"""The command lines that start other interpreters and launchers.

mpirun(2, python("-m", "unisono.measure.bench_worker", "{}"))

The one idea: an interpreter that we start imports from the same places as this one. `python -m` and `python -c` by
themselves put the working directory first, where a numpy.py of a stranger's would go before NumPy.
"""

import os
import shutil
import sys
from pathlib import Path

from unisono.errors import UserError
from unisono.extras import how_to_install
from unisono.launch.environments import untranslated


def python(*arguments: str) -> list[str]:
    """This interpreter with these arguments."""
    return [sys.executable, *(["-P"] if imports_safely() else []), *arguments]


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
    import subprocess

    told = subprocess.run(
        [program, "--version"],
        env=untranslated(),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=30,
        check=False,
    )
    return "Open MPI" in told.stdout or "open-mpi" in told.stdout
