"""Policy: what ranks exchange, and when. `make` gives the strategy that a recipe asks for."""

import numpy as np

from unisono.comm.base import Communicator
from unisono.models.base import Model
from unisono.optim.options import OptimizerOptions
from unisono.strategies.base import Strategy
from unisono.strategies.joining import AFRESH, Start, join_arena
from unisono.strategies.shared import Extent


def make(
    comm: Communicator,
    model: Model,
    options: OptimizerOptions,
    extent: Extent,
    allreduce: str,
    rng: np.random.Generator,
    start: Start = AFRESH,
) -> Strategy:
    """`allreduce` "arena": one copy per node, same bits on any ranks and nodes; else the algorithm over replicas.

    Starting values are drawn from `rng`, which is the same on every rank, unless `start` is in the middle.
    """
    if allreduce == "arena":
        from unisono.strategies.sync import Sync

        joined = join_arena(comm, model, options, extent, rng, start)
        return Sync(joined.shared, joined.member, model, options, away=joined.away)
    from unisono.strategies.replica import Replica, Terms

    replica = Replica(comm, model, options, allreduce, extent.epochs, Terms(steps=extent.steps))
    replica.start(model, rng)
    if start.position:
        replica.go_on(start)
    return replica
