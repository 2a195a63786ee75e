"""Transports: whether 2 ranks can exchange numbers over shared memory, MPI and gloo, and whether Accelerate imports.

    python -m unisono.doctor.probe_entry mpi

The one idea: an installed package proves little, so each probe starts 2 ranks and looks at their sum (`two_ranks.py`).

Limits: Accelerate, which is needed for comparisons alone, is only imported.
"""

import subprocess
from importlib import import_module, metadata
from importlib.util import find_spec

from unisono.doctor.finding import Finding
from unisono.doctor.two_ranks import exchange
from unisono.environment.variables import mpi_environment
from unisono.launch.commands import find_program, mpi_problem
from unisono.user_code.extras import how_to_install

ARENA_FIX = "unisono cannot train on several ranks here; paste `unisono doctor --json` into a bug report"
MPI_INSTALL = f"{how_to_install('mpi')}: mpi4py and a whole Open MPI, as wheels"
MPI_LIBRARY = "export MPI4PY_LIBMPI=/path/to/libmpi.so; or let mpirun or torchrun start the ranks"
MPI_FIX = (
    "mpi4py and mpirun must be of the same MPI: `mpirun --version`, `python -m mpi4py --mpi-library`; " + MPI_INSTALL
)
GLOO_FIX = "let 127.0.0.1 through: is the loopback interface up (`ip link show lo`)? A firewall may be in the way"
ACCELERATE_INSTALL = how_to_install("accelerate")


def probe_arena() -> list[Finding]:
    """unisono's own launcher and shared memory. Nothing works without it, and there is nothing to install."""
    return [exchange("shared memory", "shm", "arena", ARENA_FIX)]


def probe_mpi() -> list[Finding]:
    """Whether mpi4py and mpirun are there and belong together. Not needed on one machine."""
    if find_spec("mpi4py") is None:
        text = "mpi4py is not installed; it is for ranks of mpirun and srun alone"
        return [Finding("MPI", "missing", text, MPI_INSTALL)]
    program = find_program("mpirun")
    problem = mpi_problem()
    if program is None:
        text = f"mpi4py {metadata.version('mpi4py')} is there, mpirun is not"
        return [Finding("MPI", "missing", f"{text}, nor a library: {problem}" if problem else text, MPI_INSTALL)]
    facts = {"mpi4py": metadata.version("mpi4py"), "mpirun": program, "version": mpirun_version(program)}
    text = f"{facts['version']}, mpi4py {facts['mpi4py']}"
    ranks = exchange("MPI, 2 ranks", "mpi", "native", MPI_FIX)
    srun = [srun_finding(problem)] if problem and ranks.status == "ok" else []
    return [Finding("MPI", "ok", text, facts=facts), ranks, *srun]


def srun_finding(problem: str) -> Finding:
    """mpirun passes the path of its library on; ranks of srun must find it by themselves."""
    text = f"mpi4py finds its library under mpirun alone ({problem}): ranks that srun starts would fail"
    status = "warning" if find_program("srun") else "missing"
    return Finding("MPI, by srun", status, text, MPI_LIBRARY)


def mpirun_version(program: str) -> str:
    """What an mpirun calls itself: 'mpirun (Open MPI) 5.0.11'."""
    output = subprocess.run(
        [program, "--version"],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=10,
        check=False,
        env=mpi_environment(),
    ).stdout
    lines = [line.strip() for line in output.splitlines()]
    named = next((line for line in lines if line.startswith("Version:")), "")  # MPICH's second line
    return f"MPICH {named.split()[-1]}" if named else next(iter(lines), "") or program


def probe_gloo() -> list[Finding]:
    """torch's transport between CPUs; no finding without torch, which has its own probe."""
    return [exchange("gloo, 2 ranks", "gloo", "native", GLOO_FIX)] if find_spec("torch") else []


def probe_accelerate() -> list[Finding]:
    """Whether `--strategy accelerate` can be imported."""
    if find_spec("accelerate") is None:
        text = "not installed; it is for --strategy accelerate, a comparison"
        return [Finding("Accelerate", "missing", text, ACCELERATE_INSTALL)]
    version = metadata.version("accelerate")
    try:
        import_module("unisono.strategies.external.accelerate")
    except Exception as error:  # the user wants to see any error of the import
        text = f"Accelerate {version} cannot be imported: {type(error).__name__}: {error}"
        return [Finding("Accelerate", "warning", text, ACCELERATE_INSTALL, {"version": version})]
    return [Finding("Accelerate", "ok", f"Accelerate {version}", facts={"version": version})]
