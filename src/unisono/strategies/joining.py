"""How ranks that already know each other through a communicator come to share an arena: nobody watches over them.

shared, member = join_arena(comm, model, options, extent, rng)      # called by every rank of comm, all on one node
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import final

import numpy as np

from unisono.arena import protocol
from unisono.arena.member import Member
from unisono.comm.base import Communicator
from unisono.comm.node import share_segment
from unisono.comm.telling import told
from unisono.models.base import Model
from unisono.optim.options import OptimizerOptions
from unisono.resources import usable_cores
from unisono.strategies.shared import Extent, Lasting, Shared, plan_sections


@final
@dataclass(frozen=True)
class Start:
    """Where a run begins: after round `position`, or with values that are drawn."""

    position: int = 0
    put_back: Callable[[Lasting], None] | None = None
    """On the first rank alone: fills in what that round left."""
    gone: Callable[[], list[int]] | None = None
    """Which ranks have ended; None: nobody knows."""


AFRESH = Start()


def join_arena(
    comm: Communicator,
    model: Model,
    options: OptimizerOptions,
    extent: Extent,
    rng: np.random.Generator,
    start: Start = AFRESH,
) -> tuple[Shared, Member]:
    """The arena with the starting values in it, drawn from `rng` or put back, and this rank's place."""
    sections = plan_sections(model, options, extent)
    with closing(share_segment(comm, list(range(comm.size)), sections.nbytes)) as segment:
        shared = Shared(segment, sections, comm.size)  # its views keep the memory

    def begin() -> None:
        model.init(shared.params[: model.layout.length], shared.buffers, rng)
        if start.put_back is not None:
            start.put_back(shared.lasting_at(start.position))
        protocol.first_view(shared.words, range(comm.size), comm.size, start.position)

    told(comm, begin)
    crowded = comm.size > usable_cores()
    member = Member(shared.words, comm.rank, comm.size, crowded=crowded, timeout_s=comm.timeout_s)
    if start.gone is not None:
        member.watch(start.gone)
    return shared, member
