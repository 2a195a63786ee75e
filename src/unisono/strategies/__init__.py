"""Policy: what ranks exchange, and when. `make` gives the strategy that a recipe asks for."""

from unisono.comm.base import Communicator
from unisono.models.base import Model
from unisono.optim.options import OptimizerOptions
from unisono.strategies.base import Strategy


def make(comm: Communicator, model: Model, options: OptimizerOptions, shards: int, allreduce: str) -> Strategy:
    """`allreduce` "arena": one shared copy per node, same bits on any ranks; else the algorithm over replicas."""
    if allreduce == "arena":
        from unisono.strategies.sync import Sync

        return Sync(comm, model, options, shards)
    from unisono.strategies.replica import Replica

    return Replica(comm, model, options, allreduce)
