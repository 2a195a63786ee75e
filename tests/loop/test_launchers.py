"""The user's own loop under torchrun and mpirun: the bits of the other."""

import json
import subprocess
import sys
from functools import cache

from support.needs import needs_mpi, needs_torch
from support.paths import IMPORTS, QUIET_END, worker
from unisono.environment.variables import child_environment, mpi_environment
from unisono.launch.commands import mpirun

pytestmark = needs_torch

SCRIPT = worker("own_loop")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", QUIET_END, SCRIPT[1]]


def started(command: list[str], environment: dict[str, str]) -> list:
    ended = subprocess.run(command, env=environment | IMPORTS, capture_output=True, text=True, timeout=110, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]
    (line,) = (line for line in ended.stdout.splitlines() if line.startswith("["))
    return json.loads(line)


@cache
def by_torchrun() -> list:
    return started(TORCHRUN, child_environment(threads=1))


def test_torchrun():
    size, found = by_torchrun()
    assert size == 2
    assert found["losses"][-1] < found["losses"][0]


@needs_mpi
def test_mpirun():
    assert started(mpirun(2, SCRIPT), mpi_environment()) == by_torchrun()
