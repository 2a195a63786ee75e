import subprocess
import sys
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import psutil
import pytest

import unisono
from support.needs import needs_mpi4py, needs_torch
from unisono.environment.os_environ import child_environment, mpi_environment
from unisono.environment.process_rank import Placement
from unisono.errors import Contradiction, UserError
from unisono.launch.connect import connect, connect_gloo
from unisono.launch.launcher_commands import mpirun

FOUR = Placement(0, 4, 0, 4, 0, 1, None, "SLURM")


def run(command: list[str], more: Mapping[str, str] = MappingProxyType({})) -> subprocess.CompletedProcess[str]:
    """In the environment of MPI's ranks."""
    told = mpi_environment() | more
    return subprocess.run(command, env=told, capture_output=True, text=True, timeout=60, check=False)


def test_alone_is_a_world_of_one():
    code = "import unisono\nwith unisono.join() as world: print(world)"
    ended = run([sys.executable, "-c", code], child_environment(None))
    assert ended.stdout.strip() == "World(rank=0, size=1, transport='serial')"


def test_an_unknown_transport_lists_the_valid_ones():
    with pytest.raises(UserError, match="unknown transport 'udp'; there are: shm, mpi, gloo, nccl"):
        connect(FOUR, "udp", 1.0)


@needs_mpi4py
def test_slurm_says_four_and_mpi_says_one():
    code = (
        "from unisono.launch.connect import connect; from unisono.environment.process_rank import Placement\n"
        "connect(Placement(0, 4, 0, 4, 0, 1, None, 'SLURM'), 'mpi', 1.0)"
    )
    ended = run([sys.executable, "-c", code])
    assert ended.returncode
    assert Contradiction.__name__ in ended.stderr
    assert "SLURM says" in ended.stderr
    assert "--mpi=pmix" in ended.stderr


@needs_mpi4py
def test_ranks_of_mpi_have_so_long_to_connect_for_torch():
    code = (
        "from unisono.comm.topology.rendezvous import RendezvousOptions; from unisono.launch.connect import connect\n"
        "from unisono.environment.process_rank import Placement\n"
        "join = RendezvousOptions(timeout_s=7.0)\n"
        "with connect(Placement(0, 1, 0, 1, 0, 1, None, 'Open MPI'), 'mpi', 9.0, join) as comm:\n"
        "    print(comm.join_s, comm.timeout_s)"
    )
    ended = run(mpirun(1, [sys.executable, "-c", code]))
    assert ended.stdout == "7.0 9.0\n", ended.stderr


@needs_mpi4py
def test_an_mpi_library_that_cannot_be_loaded_is_said():
    """As under srun in an environment whose MPI is not where mpi4py looks."""
    rank = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "MPI4PY_LIBMPI": "/nowhere/libmpi.so"}
    ended = run([sys.executable, "-m", "unisono", "train"], rank)
    assert ended.returncode == 2
    assert ended.stderr.startswith("unisono: MPI cannot be used: ")
    assert "HINT: install an MPI" in ended.stderr


@needs_torch
def test_gloo_without_an_address_is_refused():
    with pytest.raises(UserError, match=r"needs the address of rank 0, and none was given \(started: SLURM\)"):
        connect(FOUR, "gloo", 1.0)


@needs_mpi4py
def test_shm_over_processes_that_mpirun_started():
    code = (
        "import numpy as np, unisono\n"
        "with unisono.join('shm', 20.0) as world:\n"
        "    x = np.array([world.rank + 1.0]); world.comm.all_reduce(x)\n"
        "    world.rank == 0 and print(world, x[0])"
    )
    ended = run(mpirun(3, [sys.executable, "-c", code]))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == "World(rank=0, size=3, transport='shm') 6.0"


@needs_torch
def test_gloo_over_ranks_that_we_forked():
    def work(world):
        from unisono.comm.gloo.store import secret_of

        before = listening()
        with connect_gloo(world.comm) as comm:
            array = np.array([comm.rank + 1.0])
            comm.all_reduce(array)
            proved = secret_of(comm._store).key
            assert len(proved) == 64
            return [comm.transport, float(array[0]), sorted(listening() - before)[0][0], proved.hex()]

    def listening():
        found = psutil.Process().net_connections("tcp")
        return {tuple(entry.laddr) for entry in found if entry.status == psutil.CONN_LISTEN}

    found = unisono.run(work, 2, timeout_s=30)
    assert [told[:3] for told in found] == [["gloo", 3.0, "127.0.0.1"]] * 2
    assert found[0][3] == found[1][3]
