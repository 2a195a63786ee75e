"""One rank of the tests of the MPI backend: mpirun -n 3 python mpi_backend.py, or with "hang" to be aborted."""

import sys
import threading
from contextlib import suppress

import numpy as np

from support.comm.conformance_checks import hasty
from unisono.comm.base import Communicator
from unisono.comm.mpi import communicator as mpi
from unisono.comm.mpi import library as mpi_library
from unisono.errors import CommTimeout
from unisono.world import World


def long_arrays_go_in_pieces(comm: Communicator) -> None:
    pieces = mpi_library._PIECE_BYTES, mpi_library._BLOCK_BYTES
    mpi_library._PIECE_BYTES, mpi_library._BLOCK_BYTES = 1000, 64
    try:
        for length in (999, 1000, 1001, 1024, 4099):
            mine = np.full(length, comm.rank, np.uint8)
            assert (comm.all_gather(mine) == np.arange(3)[:, None]).all()
            gathered = comm.gather(mine, root=1)
            assert gathered is None or (gathered == np.arange(3)[:, None]).all()
            got = np.empty(length, np.uint8)
            comm.sendrecv(mine, (comm.rank + 1) % 3, got, (comm.rank - 1) % 3)
            assert (got == (comm.rank - 1) % 3).all()
            comm.broadcast(mine, root=2)
            assert (mine == 2).all()
            total = np.full(length, comm.rank, np.int64)
            comm.all_reduce(total)
            assert (total == 3).all()
    finally:
        mpi_library._PIECE_BYTES, mpi_library._BLOCK_BYTES = pieces


def unchecked_gives_the_same() -> None:
    with mpi.world(20.0, checked=False) as fast:
        total = np.full(1009, float(fast.rank))
        fast.all_reduce(total)
        assert (total == 3).all()
        assert (fast.all_gather(total[:2]) == 3).all()
        fast.barrier()


if __name__ == "__main__":
    if sys.argv[1:] == ["hang"]:
        group = hasty(mpi.world(20.0), 3.0)
        if group.rank == 2:
            threading.Event().wait()
        group.barrier()  # nobody handles the CommTimeout
    if sys.argv[1:] == ["handled"]:
        mpi._FINALIZE_S = 1.0
        group = hasty(mpi.world(20.0), 1.0)
        if group.rank == 2:
            threading.Event().wait()
        with suppress(CommTimeout):
            group.barrier()
        sys.exit(0)  # MPI_Finalize would wait for rank 2
    if sys.argv[1:] == ["raises"]:
        with World(mpi.world(60.0)) as world:
            if world.rank == 1:
                raise ValueError("rank one had enough")
            world.comm.barrier()
    with mpi.world(20.0) as comm:
        long_arrays_go_in_pieces(comm)
        unchecked_gives_the_same()
    print("PASSED", flush=True)
