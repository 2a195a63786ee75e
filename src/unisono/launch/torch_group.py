"""torch's default process group for the ranks of a communicator, and the device of each of them.

The one idea: whoever started the ranks, they already know each other and agree on a store that way, so nothing has to
be configured: no address, no port, no variables that must be right.

    with default_group(comm, "cpu", threads=1) as device: DistributedDataParallel(module)

On one node the store is a file, and gloo listens on 127.0.0.1; over several it is a store on rank 0's host, at a free
port and at whichever of its addresses the others reach, for host names may resolve to nothing, or to 127.0.0.1. Rank 0
makes a secret for it, which the others hear over the communicator that they have.
One process per device: the local rank picks it, before any other call of CUDA.

Limits: gloo's threads are left as torch makes them, unlike those of `comm/gloo/communicator.py`, for this is the peer
that others are compared with. The path on GPUs follows torch's documentation but has never run: its authors had no GPU;
the tests walk it with torch's calls replaced. See `strategies/external/device_assignment.py` for who gets which device.
"""

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a group: its functions have the one that they find for a default
from torch.distributed import FileStore, Store  # type: ignore[attr-defined]  # public all the same

from unisono.comm.base import Communicator
from unisono.comm.broadcast_object import broadcast_object, gather_objects
from unisono.comm.gloo.process_group import prove_pairs, try_s
from unisono.comm.gloo.store import SecretStore, prefixed, reach_store, serve_store
from unisono.comm.topology.addresses import interface_of, own_addresses, route_to
from unisono.comm.topology.authentication import Secret
from unisono.comm.topology.rendezvous import RendezvousOptions, exchange_addresses
from unisono.comm.topology.shared_machine import node_colour
from unisono.comm.topology.store_client import Unreachable
from unisono.environment.os_environ import torch_variables
from unisono.environment.process_rank import Placement
from unisono.errors import UserError, first_line
from unisono.strategies.external.device_assignment import (
    BACKENDS,
    check_devices,
    check_one_kind,
    device_of,
    local_ranks,
)

_TOLD = "rank 0"


@contextmanager
def default_group(comm: Communicator, kind: str, threads: int) -> Iterator[torch.device]:
    """The group exists inside; gives this rank's device. `kind`: cpu or cuda. Called by every rank of `comm`.

    Whoever wraps a module for it lets go of the wrapper inside, too: it keeps the group's threads, and where those
    outlive the interpreter they may want its lock in vain, and abort the process.
    """
    rows = comm.all_gather(np.array([node_colour(comm), list(BACKENDS).index(kind)]))
    check_one_kind([list(BACKENDS)[number] for number in rows[:, 1]])
    colours = rows[:, 0].tolist()
    local_rank, local_size = local_ranks(colours)[comm.rank], colours.count(colours[comm.rank])
    if kind == "cuda":
        check_devices(kind, local_size, torch.cuda.device_count())
    device = torch.device(device_of(kind, local_rank))
    if kind == "cuda":
        torch.cuda.set_device(device)
    with ExitStack() as kept:
        directory = kept.enter_context(tempfile.TemporaryDirectory(prefix="unisono-"))
        store, address, own = meet(
            comm, directory, one_node=local_size == comm.size, near=colours[comm.rank] == colours[0]
        )
        backend = BACKENDS[kind]
        here = Placement(comm.rank, comm.size, local_rank, local_size, None, None, address, "unisono")
        # gloo would take what this machine's name resolves to, which may be nothing that others reach.
        with torch_variables(here, threads, interface=interface_of(own)):
            try:
                _connect(comm, backend, store)
                if backend == "gloo":
                    kept.close()  # a run that is killed leaves no file; NCCL would look for it again
                yield device
            finally:
                if dist.is_initialized():
                    dist.destroy_process_group()


def _connect(comm: Communicator, backend: str, store: Store) -> None:
    """The group, on every rank or on none; returns when all are connected, so that the store may go."""
    wait, failure = timedelta(seconds=comm.timeout_s), ""
    join_s = min(comm.join_s, comm.timeout_s)
    # gloo would try five times for as long as collectives may take. NCCL connects later.
    limit = timedelta(seconds=try_s(join_s)) if backend == "gloo" else wait
    try:
        dist.init_process_group(backend, store=store, rank=comm.rank, world_size=comm.size, timeout=limit)
        if backend == "gloo":
            prove_pairs(_gloo(), prefixed("unisono/pairs", store), comm.rank, comm.size, join_s)
    except RuntimeError as error:
        failure = first_line(error)
    if failed := [(rank, found) for rank, found in enumerate(gather_objects(comm, failure)) if found]:
        raise UserError(
            f"within {join_s:g} s (--join-timeout) there was no connection for torch's group to "
            f"all other ranks: {failed[0][1]}",
            hint="ports above 1023 must be open between the machines, in both directions; does another --interface "
            "lead there? unisono doctor --nodes shows who reaches whom",
            rank=failed[0][0],
        )
    if backend == "gloo":
        _gloo()._set_default_timeout(wait)


def _gloo() -> Any:
    group = dist.group.WORLD
    assert group is not None
    return group._get_backend(torch.device("cpu"))


def meet(comm: Communicator, directory: str, *, one_node: bool, near: bool) -> tuple[Store, str | None, str]:
    """A store that all ranks of `comm` reach; "host:port" of it, None if it is a file in rank 0's `directory`; and this
    rank's address for the others. near: rank 0 is on this node."""
    if one_node:
        path, key = broadcast_object(comm, lambda: [str(Path(directory) / "store"), secrets.token_hex(32)])
        return prefixed("unisono", FileStore(path, comm.size), Secret(key.encode(), _TOLD)), None, "127.0.0.1"
    kept: list[SecretStore] = []

    def serve() -> list[Any]:
        addresses = [comm.address] if comm.address else own_addresses() or ["127.0.0.1"]
        key = secrets.token_hex(32)
        try:
            served = serve_store(addresses, 0, Secret(key.encode(), _TOLD), "rank 0")
        except OSError as error:
            raise UserError(
                f"rank 0 cannot listen for torch's ranks: {error.strerror or error}",
                hint="--interface names the network to use; `ip address` shows them",
            ) from None
        kept.append(served)
        return [served.addresses, served.port, key]

    addresses, port, key = broadcast_object(comm, serve)
    host = addresses[0] if near else route_to(addresses, port)
    lost = [rank for rank, found in enumerate(gather_objects(comm, host)) if not found]
    if lost:
        raise UserError(
            f"rank {lost[0]} reaches rank 0 at none of {', '.join(addresses)}, port {port}, where torch's ranks meet",
            hint="ports above 1023 must be open between the machines; --interface names the network to use; "
            "unisono doctor --nodes shows who reaches whom",
        )
    join = RendezvousOptions(main=host, timeout_s=min(comm.join_s, comm.timeout_s))
    if not kept:
        try:
            kept.append(reach_store(host, port, Secret(key.encode(), _TOLD), join.timeout_s, f"rank {comm.rank}"))
        except Unreachable as error:
            raise UserError(f"no store at {host}:{port}: {error}", rank=comm.rank) from None
    store = kept[0]
    store.set_timeout(timedelta(seconds=comm.timeout_s))
    own = comm.address or exchange_addresses(prefixed("unisono/roll", store), comm.rank, comm.size, join)
    return store, f"{host}:{port}", own
