"""The MPI library that mpi4py finds: how it is started, called and ended, and which one it is.

Its one idea: MPI is imported here and nowhere else, for how it starts must be said before; an error of MPI is one of
ours, and arrays of any length pass, though MPI-3 counts in 32 bits.

    mpirun -n 2 python -c "from unisono.comm.mpi.library import library_version; print(library_version())"

Limits: importing this file starts MPI, at thread level "serialized" unless the program imported mpi4py earlier; `abort`
ends the whole job, not this rank alone.
"""

from collections.abc import Callable, Iterator
from typing import Any

import mpi4py

from unisono.comm.base import Array
from unisono.errors import CommError

# Locks around every MPI call are dear at small messages, and a communicator belongs to one thread anyway.
mpi4py.rc.thread_level = "serialized"

from mpi4py import MPI as MPI  # noqa: E402  # whoever took it from mpi4py might start it before the line above

_PIECE_BYTES = 2**30
"""MPI-3 counts in 32-bit integers, and implementations multiply them: longer arrays go in pieces or blocks."""
_BLOCK_BYTES = 2**20


def world_size() -> int:
    """How many ranks MPI believes it started: 1 when this process was started without it."""
    return MPI.COMM_WORLD.Get_size()


def library() -> str:
    """Which MPI it is: Open MPI, MPICH; empty: another one."""
    return next((name for name in ("Open MPI", "MPICH") if library_version().startswith(name)), "")


def library_version() -> str:
    """As it calls itself: 'Open MPI v5.0.11'; of MPICH without the long list that follows."""
    return " ".join(MPI.Get_library_version().splitlines()[0].split(",")[0].split())


def abort(exit_code: int) -> None:
    """Ends every rank of the job at once, also those that hang."""
    MPI.COMM_WORLD.Abort(exit_code)


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """What `function` of MPI gives; a `CommError` if it fails."""
    try:
        return function(*arguments)
    except MPI.Exception as error:
        rank = MPI.COMM_WORLD.Get_rank()
        raise CommError(str(error), hint="MPI's own messages may say more", rank=rank) from error


def pieces(flat: Array) -> Iterator[Array]:
    """A flat array in pieces that MPI can count."""
    step = _PIECE_BYTES // flat.itemsize
    for start in range(0, flat.size, step):
        yield flat[start : start + step]


def spec(data: Array, nbytes: int) -> list[Any]:
    """What mpi4py takes for a buffer: one item of `nbytes` per rank."""
    if nbytes <= _PIECE_BYTES:
        return [data, nbytes, MPI.BYTE]
    block = MPI.BYTE.Create_contiguous(_BLOCK_BYTES)
    blocks = block.Create_contiguous(nbytes // _BLOCK_BYTES)
    whole = nbytes // _BLOCK_BYTES * _BLOCK_BYTES
    item = MPI.Datatype.Create_struct([1, nbytes - whole], [0, whole], [blocks, MPI.BYTE]).Commit()
    block.Free()
    blocks.Free()
    return [data, 1, item]
