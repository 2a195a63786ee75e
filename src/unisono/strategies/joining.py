"""How ranks that already know each other through a communicator come to share an arena: nobody watches over them.

    joined = join_arena(comm, model, options, extent, rng)              # called by every rank of comm

On several machines there is an arena on each; the first rank of each is its courier (`nodes/courier.py`).
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import final

import numpy as np

from unisono.arena.arena import Arena
from unisono.arena.member import Member
from unisono.comm.base import Communicator
from unisono.comm.checked import CheckedCommunicator
from unisono.comm.node import NodeGroup, gather_words, host_names, node_colour
from unisono.comm.telling import told
from unisono.models.base import Model
from unisono.optim.options import OptimizerOptions
from unisono.strategies.nodes.away import HERE, Away
from unisono.strategies.nodes.courier import Courier
from unisono.strategies.nodes.names import NodeName
from unisono.strategies.nodes.seating import Seating
from unisono.strategies.shared import Extent, Lasting, Shared, plan_shared


@final
@dataclass(frozen=True)
class Start:
    """Where a run begins: after round `position`, or with values that are drawn."""

    position: int = 0
    put_back: Callable[[Lasting], None] | None = None
    """On the first rank alone: fills in what that round left."""
    gone: Callable[[], list[int]] | None = None
    """Which ranks have ended; None: nobody knows."""
    colours: tuple[int, ...] = ()
    """For each rank something that is equal on one node; if empty, found out."""
    wire: np.dtype | None = None
    """What sums are rounded to on their way between nodes; None: they are not."""


AFRESH = Start()


@final
@dataclass(frozen=True)
class Joined:
    """What a rank holds then."""

    shared: Shared
    """With the starting values in it."""
    member: Member
    away: Away


def join_arena(
    comm: Communicator,
    model: Model,
    options: OptimizerOptions,
    extent: Extent,
    rng: np.random.Generator,
    start: Start = AFRESH,
) -> Joined:
    """The arena, with the starting values drawn from `rng` or put back, and this rank's place."""
    colours = start.colours or tuple(comm.all_gather(np.array([node_colour(comm)]))[:, 0].tolist())
    seating = Seating.of(colours, comm.rank, extent.shards, rounded=start.wire is not None)
    if seating.count == 1:
        return Joined(*_join(comm, model, options, extent, rng, start), HERE)
    hosts, addresses = tuple(host_names(comm)), gather_words(comm, comm.address)
    leading = comm.rank == seating.ranks[0]
    couriers = comm.split(0 if leading else 1)
    if isinstance(couriers, CheckedCommunicator) and couriers.transport == "gloo":
        couriers.checked = False  # its own time-out stays; to compare calls would take as long as to make them
    if not leading:
        couriers.close()
    gone = start.gone
    here = replace(
        start,
        put_back=partial(_spread, couriers, start) if leading and start.position else None,
        gone=None if gone is None else (lambda: seating.slots_of(gone())),
    )
    with comm.split(seating.node) as neighbours:
        near = replace(extent, size=neighbours.size, seating=seating, spare=extent.spare and seating.node == 0)
        shared, member = _join(neighbours, model, options, near, rng, here)
    names = [NodeName(node, hosts[group[0]], addresses[group[0]], group) for node, group in enumerate(seating.groups)]
    courier = Courier(shared, couriers, names, start.wire) if leading else None
    return Joined(shared, member, Away(seating, hosts, courier))


def _join(
    comm: Communicator,
    model: Model,
    options: OptimizerOptions,
    extent: Extent,
    rng: np.random.Generator,
    start: Start,
) -> tuple[Shared, Member]:
    """Of ranks that are all on one node."""

    def fill(shared: Shared) -> None:
        model.init(shared.params[: model.layout.length], shared.buffers, rng)
        if start.put_back is not None:
            start.put_back(shared.lasting_at(start.position))

    arena, member = Arena.join(NodeGroup(comm), plan_shared(model, options, extent), fill, start.position)
    with closing(arena):
        shared = arena.state
    if (gone := start.gone) is not None:
        # Whoever has said farewell does not come either, though under MPI its process may stay until all have ended.
        member.watch(lambda: sorted({*gone(), *shared.farewells.slots}))
    return shared, member


def _spread(couriers: Communicator, start: Start, lasting: Lasting) -> None:
    """What the first node puts back, on all of them."""
    told(couriers, lambda: start.put_back(lasting) if start.put_back is not None else None)
    for array in lasting.arrays:
        couriers.broadcast(array)
