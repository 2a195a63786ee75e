"""Where things are, for tests that start processes.

    subprocess.run(worker("mpi_backend"), env=child_environment() | IMPORTS)

pytest has `tests/` on its path (`pythonpath` in pyproject.toml); a process that a test starts has not, unless it is
given `IMPORTS` in its environment.
"""

import os
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
BENCHMARKS = ROOT / "benchmarks"
WORKERS = Path(__file__).parent / "workers"
IMPORTS = {"PYTHONPATH": os.pathsep.join(filter(None, (str(TESTS), str(BENCHMARKS), os.environ.get("PYTHONPATH"))))}
"""The environment of a process that imports `support`, or modules of benchmarks/."""


def worker(name: str) -> list[str]:
    """The command of a script of `support/workers`."""
    return [sys.executable, str(WORKERS / f"{name}.py")]


QUIET_END = worker("quiet_end")[1]
"""Runs another script, and fails if threads of gloo outlive it."""
