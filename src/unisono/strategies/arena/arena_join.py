"""How ranks that already know each other through a communicator come to share an arena: nobody watches over them.

    joined = join_arena(comm, model, options, extent, rng)              # called by every rank of comm

On several machines there is an arena on each; the first rank of each is its exchanger (`machines/machine_exchange.py`).
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import final

import numpy as np

from unisono.arena.arena import Arena
from unisono.arena.membership.member import Member
from unisono.comm.base import Communicator
from unisono.comm.broadcast_object import broadcast_object, gather_objects
from unisono.comm.checked_base import CheckedCommunicator
from unisono.comm.topology.shared_machine import NodeGroup, host_names, node_colour
from unisono.models.base import Model
from unisono.optim.options import OptimizerOptions
from unisono.strategies.arena.state import ArenaExtent, ArenaState, PersistentArrays, plan_shared
from unisono.strategies.machines.machine_exchange import Exchanger
from unisono.strategies.machines.machine_layout import MachineLayout, MachineName
from unisono.strategies.machines.mailbox import ONE_MACHINE, RemoteView


@final
@dataclass(frozen=True)
class ArenaStart:
    """Where a run begins: after round `position`, or with values that are drawn."""

    position: int = 0
    put_back: Callable[[PersistentArrays], None] | None = None
    """On the first rank alone: fills in what that round left."""
    gone: Callable[[], list[int]] | None = None
    """Which ranks have ended; None: nobody knows."""
    colours: tuple[int, ...] = ()
    """For each rank something that is equal on one node; if empty, found out."""
    wire: np.dtype | None = None
    """What sums are rounded to on their way between nodes; None: they are not."""


NEW_START = ArenaStart()


@final
@dataclass(frozen=True)
class JoinedArena:
    """What a rank holds then."""

    shared: ArenaState
    """With the starting values in it."""
    member: Member
    remote: RemoteView


def join_arena(
    comm: Communicator,
    model: Model,
    options: OptimizerOptions,
    extent: ArenaExtent,
    rng: np.random.Generator,
    start: ArenaStart = NEW_START,
) -> JoinedArena:
    """The arena, with the starting values drawn from `rng` or put back, and this rank's place."""
    colours = start.colours or tuple(comm.all_gather(np.array([node_colour(comm)]))[:, 0].tolist())
    machine_layout = MachineLayout.of(colours, comm.rank, extent.shards, rounded=start.wire is not None)
    if machine_layout.count == 1:
        return JoinedArena(*_join(comm, model, options, extent, rng, start), ONE_MACHINE)
    hosts, addresses = tuple(host_names(comm)), gather_objects(comm, comm.address)
    leading = comm.rank == machine_layout.ranks[0]
    exchangers = comm.split(0 if leading else 1)
    if isinstance(exchangers, CheckedCommunicator) and exchangers.transport == "gloo":
        exchangers.checked = False  # its own time-out stays; to compare calls would take as long as to make them
    if not leading:
        exchangers.close()
    gone = start.gone
    here = replace(
        start,
        put_back=partial(_spread, exchangers, start) if leading and start.position else None,
        gone=None if gone is None else (lambda: machine_layout.slots_of(gone())),
    )
    with comm.split(machine_layout.node) as neighbours:
        near = replace(
            extent, size=neighbours.size, machine_layout=machine_layout, spare=extent.spare and machine_layout.node == 0
        )
        shared, member = _join(neighbours, model, options, near, rng, here)
    names = [
        MachineName(node, hosts[group[0]], addresses[group[0]], group)
        for node, group in enumerate(machine_layout.groups)
    ]
    exchanger = Exchanger(shared, exchangers, names, start.wire) if leading else None
    return JoinedArena(shared, member, RemoteView(machine_layout, hosts, exchanger))


def _join(
    comm: Communicator,
    model: Model,
    options: OptimizerOptions,
    extent: ArenaExtent,
    rng: np.random.Generator,
    start: ArenaStart,
) -> tuple[ArenaState, Member]:
    """Of ranks that are all on one node."""

    def fill(shared: ArenaState) -> None:
        model.init(shared.params[: model.layout.length], shared.buffers, rng)
        if start.put_back is not None:
            start.put_back(shared.lasting_at(start.position))

    arena, member = Arena.join(NodeGroup(comm), plan_shared(model, options, extent), fill, start.position)
    with closing(arena):
        shared = arena.state
    if (gone := start.gone) is not None:
        # Whoever has said failure notice does not come either, though under MPI its process may stay until all have
        # ended.
        member.detect_exits(lambda: sorted({*gone(), *shared.failure_notices.slots}))
    return shared, member


def _spread(exchangers: Communicator, start: ArenaStart, lasting: PersistentArrays) -> None:
    """What the first node puts back, on all of them."""
    broadcast_object(exchangers, lambda: start.put_back(lasting) if start.put_back is not None else None)
    for array in lasting.arrays:
        exchangers.broadcast(array)
