"""torch's default process group for the ranks of a communicator, and the device of each of them.

The one idea: whoever started the ranks, they already know each other and agree on a store that way, so nothing has to
be configured: no address, no port, no variables that must be right.

    with default_group(comm, "cpu", threads=1) as device: DistributedDataParallel(module)

On one node the store is a file, so nothing listens; over several it is a TCP store on rank 0's host, at a free port.
One process per device: the local rank picks it, before any other call of CUDA.

Limits: gloo's threads are left as torch makes them, unlike those of `comm/torch_dist.py`, for this is the peer that
others are compared with. The path on GPUs follows torch's documentation but has never run: its authors had no GPU; the
tests walk it with torch's calls replaced. See `strategies/devices.py` for who gets which device.
"""

import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a group: its functions have the one that they find for a default
from torch.distributed import FileStore, Store, TCPStore  # type: ignore[attr-defined]  # public all the same

from unisono.comm.base import Communicator
from unisono.comm.node import node_colour
from unisono.comm.route import interface_of
from unisono.launch.environments import torch_variables
from unisono.launch.placement import Placement
from unisono.strategies.devices import BACKENDS, check_alike, check_devices, device_of, local_ranks

_ADDRESS_BYTES = 512


@contextmanager
def default_group(comm: Communicator, kind: str, threads: int) -> Iterator[torch.device]:
    """The group exists inside; gives this rank's device. `kind`: cpu or cuda. Called by every rank of `comm`.

    Whoever wraps a module for it lets go of the wrapper inside, too: it keeps the group's threads, and where those
    outlive the interpreter they may want its lock in vain, and abort the process.
    """
    told = comm.all_gather(np.array([node_colour(comm), list(BACKENDS).index(kind)]))
    check_alike([list(BACKENDS)[number] for number in told[:, 1]])
    colours = told[:, 0].tolist()
    local_rank, local_size = local_ranks(colours)[comm.rank], colours.count(colours[comm.rank])
    if kind == "cuda":
        check_devices(kind, local_size, torch.cuda.device_count())
    device = torch.device(device_of(kind, local_rank))
    if kind == "cuda":
        torch.cuda.set_device(device)
    with ExitStack() as kept:
        directory = kept.enter_context(tempfile.TemporaryDirectory(prefix="unisono-"))
        store, address = meet(comm, directory, one_node=local_size == comm.size)
        wait = timedelta(seconds=comm.timeout_s)
        backend = BACKENDS[kind]
        here = Placement(comm.rank, comm.size, local_rank, local_size, None, None, address, "unisono")
        # gloo would take what this machine's name resolves to, which may be nothing that others reach.
        interface = interface_of(comm.address) if local_size < comm.size and comm.address else ""
        with torch_variables(here, threads, interface=interface):
            dist.init_process_group(backend, store=store, rank=comm.rank, world_size=comm.size, timeout=wait)
            try:
                comm.barrier()  # rank 0 must not remove the file before all have connected
                if backend == "gloo":
                    kept.close()  # a run that is killed leaves no file; NCCL would look for it again
                yield device
            finally:
                dist.destroy_process_group()


def meet(comm: Communicator, directory: str, *, one_node: bool) -> tuple[Store, str | None]:
    """A store that all ranks of `comm` reach, and "host:port" of it, None if it is a file in rank 0's `directory`."""
    wait = timedelta(seconds=comm.timeout_s)
    served: Store | None = None
    name = str(Path(directory) / "store")
    if not one_node and comm.rank == 0:
        host = comm.address or socket.gethostname()
        served = TCPStore(host, 0, comm.size, True, wait, wait_for_workers=False)
        name = f"{host}:{served.port}"
    room = np.zeros(_ADDRESS_BYTES, np.uint8)
    room[: len(name.encode())] = np.frombuffer(name.encode(), np.uint8)
    comm.broadcast(room)
    agreed = room.tobytes().rstrip(b"\0").decode()
    if one_node:
        return FileStore(agreed, comm.size), None
    if served is None:
        host, _, port = agreed.rpartition(":")
        served = TCPStore(host, int(port), comm.size, False, wait, wait_for_workers=False)
    return served, agreed
