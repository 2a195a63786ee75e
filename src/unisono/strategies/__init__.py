"""Policy: what ranks exchange, and when. `make` gives the strategy that a recipe asks for."""

import numpy as np

from unisono.comm.base import Communicator
from unisono.models.base import Model
from unisono.optim.options import OptimizerOptions
from unisono.strategies.base import Strategy
from unisono.strategies.shared import Extent


def make(
    comm: Communicator,
    model: Model,
    options: OptimizerOptions,
    extent: Extent,
    allreduce: str,
    rng: np.random.Generator,
) -> Strategy:
    """`allreduce` "arena": one shared copy per node, same bits on any ranks; else the algorithm over replicas.

    Starting values are drawn from `rng`, which is the same on every rank.
    """
    if allreduce == "arena":
        from unisono.strategies.joining import join_arena
        from unisono.strategies.sync import Sync

        shared, member = join_arena(comm, model, options, extent, rng)
        return Sync(shared, member, model, options)
    from unisono.strategies.replica import Replica

    replica = Replica(comm, model, options, allreduce, extent.epochs)
    model.init(replica.params[: model.layout.length], replica.buffers, rng)
    return replica
