"""MPI: whether mpi4py and mpirun are there and belong together: 2 ranks are started for real."""

import subprocess
from importlib import metadata
from importlib.util import find_spec

from unisono.doctor.finding import Finding
from unisono.doctor.two_ranks import exchange
from unisono.environment.variables import mpi_environment
from unisono.launch.commands import find_program, mpi_problem
from unisono.user_code.extras import how_to_install

INSTALL = f"{how_to_install('mpi')}: mpi4py and a whole Open MPI, as wheels"
NAME_IT = "export MPI4PY_LIBMPI=/path/to/libmpi.so; or let mpirun or torchrun start the ranks"
FIX = "mpi4py and mpirun must be of the same MPI: `mpirun --version`, `python -m mpi4py --mpi-library`; " + INSTALL


def probe() -> list[Finding]:
    """Not needed on one machine."""
    if find_spec("mpi4py") is None:
        return [Finding("MPI", "missing", "mpi4py is not installed; it is for ranks of mpirun and srun alone", INSTALL)]
    program = find_program("mpirun")
    why = mpi_problem()
    if program is None:
        told = f"mpi4py {metadata.version('mpi4py')} is there, mpirun is not"
        return [Finding("MPI", "missing", f"{told}, nor a library: {why}" if why else told, INSTALL)]
    facts = {"mpi4py": metadata.version("mpi4py"), "mpirun": program, "version": version(program)}
    told = f"{facts['version']}, mpi4py {facts['mpi4py']}"
    ranks = exchange("MPI, 2 ranks", "mpi", "native", FIX)
    return [Finding("MPI", "ok", told, facts=facts), ranks, *([of_srun(why)] if why and ranks.status == "ok" else [])]


def of_srun(why: str) -> Finding:
    """mpirun says where its library is; ranks of srun must find it by themselves."""
    told = f"mpi4py finds its library under mpirun alone ({why}): ranks that srun starts would fail"
    status = "warning" if find_program("srun") else "missing"
    return Finding("MPI, by srun", status, told, NAME_IT)


def version(program: str) -> str:
    """What an mpirun calls itself: 'mpirun (Open MPI) 5.0.11'."""
    said = subprocess.run(
        [program, "--version"],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=10,
        check=False,
        env=mpi_environment(),
    ).stdout
    lines = [line.strip() for line in said.splitlines()]
    named = next((line for line in lines if line.startswith("Version:")), "")  # MPICH's second line
    return f"MPICH {named.split()[-1]}" if named else next(iter(lines), "") or program
