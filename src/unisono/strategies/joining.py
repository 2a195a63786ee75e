"""How ranks that already know each other through a communicator come to share an arena: nobody watches over them.

shared, member = join_arena(comm, model, options, extent, rng)      # called by every rank of comm, all on one node
"""

from contextlib import closing

import numpy as np

from unisono.arena import protocol
from unisono.arena.member import Member
from unisono.comm.base import Communicator
from unisono.comm.node import share_segment
from unisono.models.base import Model
from unisono.optim.options import OptimizerOptions
from unisono.resources import usable_cores
from unisono.strategies.shared import Extent, Shared, plan_sections


def join_arena(
    comm: Communicator, model: Model, options: OptimizerOptions, extent: Extent, rng: np.random.Generator
) -> tuple[Shared, Member]:
    """The arena with the starting values in it, and this rank's place."""
    sections = plan_sections(model, options, extent)
    with closing(share_segment(comm, list(range(comm.size)), sections.nbytes)) as segment:
        shared = Shared(segment, sections, comm.size)  # its views keep the memory
    if comm.rank == 0:
        model.init(shared.params[: model.layout.length], shared.buffers, rng)
        protocol.first_view(shared.words, range(comm.size), comm.size)
    comm.barrier()
    crowded = comm.size > usable_cores()
    return shared, Member(shared.words, comm.rank, comm.size, crowded=crowded, timeout_s=comm.timeout_s)
