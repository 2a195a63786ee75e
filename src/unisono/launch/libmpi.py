"""Whether mpi4py finds an MPI library: it is installed without one, and looks for it when it is imported.

The one idea: a process of its own is asked, started as ranks would be: mpirun may tell its ranks where its library is,
and srun does not, so that either can work without the other.

    why_not()                                    # "" or "cannot load MPI library", for ranks of srun
    why_not(["mpirun", "-n", "1"])               # for those of mpirun

Limits: MPI is not started: ranks that find their library may still not find each other. It is this machine that is
looked at, in the environment of this process.
"""

import subprocess
from collections.abc import Sequence

from unisono.launch.commands import python
from unisono.launch.environments import mpi_environment

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


def why_not(launcher: Sequence[str] = ()) -> str:
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
