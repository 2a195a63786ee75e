"""One suite over every communicator x world size: MPI under mpirun, gloo under torchrun, the rest by our own launcher.

A world is started once and runs all checks; each check of each world is a test of its own. Ranks that we fork need not
import torch: so of gloo's worlds one is torchrun's, which takes seconds to start.
"""

import json
import subprocess
import sys
from functools import cache
from importlib.util import find_spec

import pytest

import unisono
from support.comm.conformance_checks import CHECKS
from support.paths import IMPORTS, worker
from support.ports import free_port
from support.workers.conformance import MARK, TIMEOUT_S, run_checks
from unisono.comm.serial import SerialCommunicator
from unisono.comm.topology.authentication import Secret
from unisono.comm.topology.rendezvous import RendezvousOptions
from unisono.environment.os_environ import child_environment, mpi_environment
from unisono.launch.launcher_commands import mpirun

WORKER = worker("conformance")[1]
SIZES = {"shm": [1, 2, 3, 4, 5], "mpi": [1, 2, 3, 5], "gloo": [1, 2, 3, 4]}
WORLDS = [("serial", 1), *((transport, size) for transport, sizes in SIZES.items() for size in sizes)]
NEEDS = {"mpi": "mpi4py", "gloo": "torch"}
TORCHRUN_SIZE = 3


def forked_over_gloo(size: int) -> dict[str, str]:
    from unisono.comm.gloo.communicator import world  # torch, once for all ranks

    address = f"127.0.0.1:{free_port()}"
    join = RendezvousOptions("127.0.0.1", timeout_s=TIMEOUT_S, secret=Secret(b"known to all ranks", "this test"))

    def work(forked: unisono.World) -> dict[str, str]:
        with world(forked.rank, size, address, timeout_s=TIMEOUT_S, join=join) as comm:
            return run_checks(comm)

    found: dict[str, str] = unisono.run(work, size, timeout_s=TIMEOUT_S)[0]
    return found


@cache
def outcome_of(transport: str, size: int) -> dict[str, str]:
    try:
        return world_of(transport, size)
    except (unisono.UnisonoError, subprocess.TimeoutExpired) as error:
        return {name: str(error) for name in CHECKS}  # once: not every check of this world fails or waits again


def world_of(transport: str, size: int) -> dict[str, str]:
    if transport == "serial":
        return run_checks(SerialCommunicator())
    if transport == "shm":
        return unisono.run(lambda world: run_checks(world.comm), size, timeout_s=TIMEOUT_S)[0]
    if transport == "gloo" and size != TORCHRUN_SIZE:
        return forked_over_gloo(size)
    if transport == "mpi":
        command, environment = mpirun(size, [sys.executable, WORKER, "mpi"]), mpi_environment()
    else:
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
        command, environment = [sys.executable, *torchrun, WORKER, "gloo"], child_environment(threads=1)
    ended = subprocess.run(command, env=environment | IMPORTS, capture_output=True, text=True, timeout=110, check=False)
    lines = [line for line in ended.stdout.splitlines() if line.startswith(MARK)]
    if ended.returncode or len(lines) != 1:
        # A world that died, or that fell apart into several.
        told = f"exit code {ended.returncode}, {len(lines)} answers\n{ended.stdout[-2000:]}\n{ended.stderr[-4000:]}"
        return {name: told for name in CHECKS}
    found: dict[str, str] = json.loads(lines[0].removeprefix(MARK))
    return found


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize(("transport", "size"), WORLDS)
def test_conforms(transport: str, size: int, name: str) -> None:
    if transport in NEEDS and not find_spec(NEEDS[transport]):
        pytest.skip(f"{NEEDS[transport]} is not installed")
    outcome = outcome_of(transport, size)
    assert name in outcome, "not reached: an earlier check of this world failed"
    assert outcome[name] == "", outcome[name]
