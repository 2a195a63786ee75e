"""Marks of tests that need what may not be installed: `@needs_torch`, `pytestmark = needs_mpi`."""

from importlib.util import find_spec

import pytest

from unisono.launch.launcher_commands import find_program

needs_torch = pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")
needs_mpi4py = pytest.mark.skipif(not find_spec("mpi4py"), reason="mpi4py is not installed")
needs_mpi = pytest.mark.skipif(
    not find_spec("mpi4py") or find_program("mpirun") is None, reason="mpi4py or mpirun is not installed"
)
