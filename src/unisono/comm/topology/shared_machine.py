"""Which ranks are on one node, and memory that they share.

A node is whoever can attach to the same arena: same running kernel, same network name space (that is how far the
abstract sockets of `arena/memory/fd_passing.py` reach), same user. Host names are not asked: containers and name
spaces reuse them.

    segment = share_segment(comm, members=[0, 1], nbytes=1 << 20)      # called by every rank of comm
    arena, member = Arena.join(NodeGroup(comm), plan, fill)             # as well
"""

import hashlib
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from unisono.arena.in_place_allreduce import ArenaReducer
from unisono.arena.memory.fd_passing import NAME_BYTES, DescriptorOffer, take
from unisono.arena.memory.segment import Segment
from unisono.comm.base import Communicator
from unisono.comm.broadcast_object import broadcast_object, gather_objects
from unisono.comm.collective_check import reduced_code
from unisono.errors import CommError
from unisono.resources import usable_cores

_MOST_CORES = 8192


def node_key() -> bytes:
    """16 bytes that are equal exactly for the processes that can share memory."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    network = os.stat("/proc/self/ns/net").st_ino
    return hashlib.sha256(boot + f"{network} {os.geteuid()}".encode()).digest()[:16]


def node_colour(comm: Communicator) -> int:
    """The lowest rank on this rank's node: a colour for `split`. Called by every rank of `comm`."""
    return node_colours(comm)[comm.rank]


def node_colours(comm: Communicator) -> list[int]:
    """For each rank the lowest one on its node. Called by every rank of `comm`."""
    keys = [key.tobytes() for key in comm.all_gather(np.frombuffer(node_key(), np.uint8).copy())]
    return [keys.index(key) for key in keys]


def host_names(comm: Communicator) -> list[str]:
    """Where each rank runs. Called by every rank of `comm`."""
    return gather_objects(comm, socket.gethostname())


def shared_cores(comm: Communicator, ranks: Sequence[int]) -> int:
    """Cores that these ranks, all of one node, may run on: mpirun binds each to its own. Called by every rank."""
    mine = np.zeros(_MOST_CORES, np.bool_)
    mine[[core for core in os.sched_getaffinity(0) if core < _MOST_CORES]] = True
    rows = comm.all_gather(np.packbits(mine))  # (rank, bytes)
    return int(np.unpackbits(np.bitwise_or.reduce(rows[list(ranks)])).sum())


def share_segment(comm: Communicator, members: list[int], nbytes: int) -> Segment:
    """Memory shared by the `members` (ranks of `comm`, this one among them, all on one node).

    Every rank of `comm` calls it, each with its own group: the first member of a group makes the memory, its name
    goes round in one all_gather, and the others fetch it.
    """

    def told(name: str) -> np.ndarray:
        text = np.zeros(NAME_BYTES, np.uint8)
        text[: len(name)] = np.frombuffer(name.encode(), np.uint8)
        return comm.all_gather(text)

    if comm.rank == members[0]:
        return make_segment(nbytes, members[1:], told, comm.timeout_s)
    name = told("")[members[0]].tobytes().rstrip(b"\0").decode()
    return fetch_segment(name, members[0], comm.timeout_s)


def make_segment(nbytes: int, takers: Sequence[int], tell: Callable[[str], object], timeout_s: float) -> Segment:
    """New memory, once all takers have fetched it by the name that `tell` lets them know; an empty one tells them that
    it could not be made."""
    with ExitStack() as undo:
        try:
            segment = Segment.create(nbytes)
            undo.callback(segment.close)
            offer = DescriptorOffer(segment.fd)
            undo.callback(offer.withdraw)
        except Exception:  # the others wait for a name: they must hear of it first
            tell("")
            raise
        tell(offer.name)
        offer.serve(list(takers), timeout_s)
        offer.withdraw()
        undo.pop_all()
        return segment


def fetch_segment(name: str, maker: int, timeout_s: float) -> Segment:
    """The memory that rank `maker` has made."""
    if not name:
        raise CommError(f"rank {maker} could not make the shared memory; its own message says why")
    return Segment.attach(take(name, timeout_s))


@final
@dataclass(frozen=True)
class NodeGroup:
    """The ranks of `comm`, all on one node, as `Arena.join` needs them."""

    comm: Communicator

    @property
    def rank(self) -> int:
        return self.comm.rank

    @property
    def size(self) -> int:
        return self.comm.size

    @property
    def timeout_s(self) -> float:
        return self.comm.timeout_s

    def share_segment(self, nbytes: int) -> Segment:
        return share_segment(self.comm, list(range(self.size)), nbytes)

    def run_on_first(self, work: Callable[[], None]) -> None:
        broadcast_object(self.comm, work)


def make_reducer(comm: Communicator, length: int, dtype: np.dtype) -> ArenaReducer:
    """The in-place all-reduce of the arena for the ranks of `comm`, which are all on one node."""
    comm.agree("length, dtype of the arena's slots", length, reduced_code(dtype))
    segment = share_segment(comm, list(range(comm.size)), ArenaReducer.bytes_needed(comm.size, length, dtype))
    crowded = comm.size > usable_cores()
    try:
        return ArenaReducer(segment, comm.rank, comm.size, (length, dtype), crowded=crowded, meanwhile=comm.progress)
    finally:
        segment.close()  # the reducer's views keep the memory
