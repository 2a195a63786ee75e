"""What libraries around torch.distributed do with the backend: a script for `tests/torch/test_features.py`.

    unisono launch --ranks 2 tests/support/torch_features.py

Prints a JSON line for each feature on rank 0: its name in docs/unchanged-scripts.md, and what happened.
"""

import json
import shutil
import tempfile
import warnings
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FEATURES: dict[str, Callable[[], None]] = {}


def feature(name: str):
    def register(function: Callable[[], None]) -> Callable[[], None]:
        FEATURES[name] = function
        return function

    return register


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def train(module: nn.Module, optimizer=None) -> None:
    """A few steps; all ranks must end with the same parameters."""
    optimizer = optimizer or torch.optim.Adam(module.parameters(), lr=0.01)
    for step in range(3):
        optimizer.zero_grad()
        torch.manual_seed(100 * step + dist.get_rank())
        module(torch.randn(5, 8)).square().mean().backward()
        optimizer.step()


def check_equal(module: nn.Module) -> None:
    own = torch.cat([value.detach().reshape(-1) for value in module.parameters()])
    others = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(others, own)
    assert all(torch.equal(own, other) for other in others)


def parallel(**options: object) -> DistributedDataParallel:
    return DistributedDataParallel(model(), **options)


@feature("DistributedDataParallel")
def ddp() -> None:
    train(module := parallel())
    check_equal(module)


@feature("DDP with `static_graph`, `gradient_as_bucket_view`")
def static() -> None:
    train(module := parallel(static_graph=True, gradient_as_bucket_view=True))
    check_equal(module)


@feature("DDP with `find_unused_parameters`")
def unused() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.even, self.odd = nn.Linear(8, 4), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.odd(x) if dist.get_rank() % 2 else self.even(x)

    torch.manual_seed(0)
    train(module := DistributedDataParallel(Net(), find_unused_parameters=True))
    check_equal(module)


@feature("DDP with `no_sync`")
def no_sync() -> None:
    module = parallel()
    with module.no_sync():
        module(torch.randn(2, 8)).sum().backward()
    module(torch.randn(2, 8)).sum().backward()
    check_equal(module)


@feature("DDP with `torch.compile`")
def compiled() -> None:
    def net(**options: object) -> nn.Module:  # buffers, so that DDP calls the backend while compiled code runs
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4))
        return torch.compile(DistributedDataParallel(module, **options), backend="aot_eager")

    for static in (False, True):
        train(module := net(static_graph=static))
        check_equal(module)


@feature("DDP with sparse gradients of embeddings")
def sparse() -> None:
    torch.manual_seed(0)
    module = DistributedDataParallel(nn.Embedding(10, 3, sparse=True))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    module(torch.tensor([dist.get_rank(), 2])).sum().backward()
    optimizer.step()
    check_equal(module)


@feature("DDP with a PowerSGD hook")
def power_sgd() -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    module = parallel()
    module.register_comm_hook(powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook)
    train(module)
    check_equal(module)


@feature("DDP `join()` for uneven inputs")
def uneven() -> None:
    module = parallel()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for by_all in (True, False):  # False: gradients are divided by the number of ranks that still have inputs
        with module.join(divide_by_initial_world_size=by_all):
            for _ in range(2 + dist.get_rank()):
                optimizer.zero_grad()
                module(torch.randn(3, 8)).sum().backward()
                optimizer.step()


@feature("ZeroRedundancyOptimizer")
def zero() -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    module = parallel()
    train(module, ZeroRedundancyOptimizer(module.parameters(), torch.optim.Adam, lr=0.01))
    check_equal(module)


@feature("FullyShardedDataParallel")
def fsdp() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    train(module := FullyShardedDataParallel(model(), device_id=torch.device("cpu")))
    assert len(module.state_dict()) == 4


@feature("`fully_shard` (FSDP2)")
def fsdp2() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    module = model()
    fully_shard(module, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    train(module)


@feature("DTensor, DeviceMesh")
def dtensor() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    tensor = distribute_tensor(torch.arange(12.0).view(4, 3), mesh, [Shard(0)])
    assert float(tensor.redistribute(mesh, [Replicate()]).to_local().sum()) == 66.0
    assert float((tensor @ tensor.t()).full_tensor().sum()) == 1484.0


@feature("`torch.distributed.checkpoint`, also `async_save`")
def checkpoint() -> None:
    import torch.distributed.checkpoint as checkpoints

    module = parallel()
    folder = [tempfile.mkdtemp()] if dist.get_rank() == 0 else [None]
    dist.broadcast_object_list(folder)
    try:
        checkpoints.save({"model": module.state_dict()}, checkpoint_id=f"{folder[0]}/a")
        checkpoints.load({"model": module.state_dict()}, checkpoint_id=f"{folder[0]}/a")
        checkpoints.async_save({"model": module.state_dict()}, checkpoint_id=f"{folder[0]}/b").result()
        dist.barrier()
    finally:
        if dist.get_rank() == 0:
            shutil.rmtree(folder[0])


@feature("`torch.distributed.nn`")
def autograd() -> None:
    import torch.distributed.nn.functional as functional

    x = torch.ones(3, requires_grad=True)
    functional.all_reduce(x * (dist.get_rank() + 1)).sum().backward()
    size = dist.get_world_size()
    assert x.grad.tolist() == [size * (dist.get_rank() + 1.0)] * 3


@feature("functional collectives")
def functional() -> None:
    import torch.distributed._functional_collectives as functions

    size = dist.get_world_size()
    assert functions.all_reduce(torch.ones(2), "sum", dist.group.WORLD).tolist() == [size] * 2
    assert functions.all_gather_tensor(torch.ones(1), 0, dist.group.WORLD).tolist() == [1.0] * size
    assert functions.reduce_scatter_tensor(torch.ones(size), "sum", 0, dist.group.WORLD).tolist() == [size]


@feature("collectives of objects")
def objects() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    gathered: list = [None] * size
    dist.all_gather_object(gathered, {"rank": rank})
    assert [one["rank"] for one in gathered] == list(range(size))
    told = [rank, "x"]
    dist.broadcast_object_list(told)
    assert told == [0, "x"]
    part: list = [None]
    dist.scatter_object_list(part, list(range(size)) if rank == 0 else None)
    assert part == [rank]
    dist.gather_object(rank, gathered if rank == 0 else None)
    assert rank or gathered == list(range(size))


@feature("`batch_isend_irecv`")
def batched() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    got = torch.zeros(2)
    operations = [
        dist.P2POp(dist.isend, torch.full((2,), float(rank)), (rank + 1) % size),
        dist.P2POp(dist.irecv, got, (rank - 1) % size),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert got.tolist() == [float((rank - 1) % size)] * 2


@feature("`new_group`, `new_subgroups`")
def groups() -> None:
    alone, _ = dist.new_subgroups(1)
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=alone)
    first = dist.new_group([0])
    if dist.get_rank() == 0:
        dist.all_reduce(tensor, group=first)
    assert tensor.tolist() == [1.0]


@feature("torchmetrics")
def metrics() -> None:
    import torchmetrics

    mean = torchmetrics.MeanMetric()
    mean.update(float(dist.get_rank()))
    assert float(mean.compute()) == (dist.get_world_size() - 1) / 2


@feature("SyncBatchNorm")
def sync_batchnorm() -> None:
    module = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)))
    train(DistributedDataParallel(module))


@feature("`monitored_barrier`")
def monitored() -> None:
    dist.monitored_barrier()


@feature("tensors on GPUs")
def other_device() -> None:
    dist.all_reduce(torch.ones(2, device="meta"))


@feature("`ReduceOp.PREMUL_SUM`")
def scaled() -> None:
    dist.all_reduce(torch.ones(2), op=dist._make_nccl_premul_sum(2.0))


def main() -> None:
    warnings.simplefilter("ignore")
    dist.init_process_group("unisono")
    for name, function in FEATURES.items():
        try:
            function()
            found = "works"
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        if dist.get_rank() == 0:
            print(json.dumps([name, found]), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
