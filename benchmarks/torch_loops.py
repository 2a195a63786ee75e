"""The peers of `training.py`: the same networks trained by torch, one worker a contender.

The one idea: a worker is started once and waits; each line it reads from the file `go` is a turn. A turn makes a new
network, warms up, trains for about as many seconds as the line says, and prints its samples per second as a JSON line.

    python benchmarks/torch_loops.py '{"loop": "memory", "go": "/dev/stdin", ...}'     # all keys: peers.Spec

The loops, each as lean as its kind allows (no running loss, no accuracy; unisono's own loop keeps both):

- `ddp`: DistributedDataParallel over gloo, DistributedSampler, DataLoader on a TensorDataset; started by torchrun
- `lightning`: Lightning's Trainer with DDPStrategy, the same loader; by torchrun
- `accelerate`: Hugging Face Accelerate's Accelerator(cpu=True), prepare and backward, the same loader; by torchrun
- `loader`: one process, DataLoader on a TensorDataset
- `memory`: one process, no DataLoader: a permutation an epoch, index_select a batch, layers called as functions and not
  as modules, the optimizer fused or foreach, one thread or all: what is fastest in a trial before the first turn

Limits: eager torch, 2.5 or newer (fused optimizers on CPUs). torch.compile is left out: it needs a C++ compiler, and
was a quarter slower on a network as small as r4's.
"""

import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import TypeAlias

import numpy as np
import torch
import torch.distributed as dist
from peers import Network, Spec
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from unisono.models.torch import nets

NO_EXCHANGE = "none"
"""A backend of `ddp` that exchanges nothing: no real one can be faster."""
DISTRIBUTED = ("ddp", "accelerate", "lightning")
WARM_UP_STEPS = 20
TRIALS = 3

_PLAIN = (nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Sigmoid)

Forward: TypeAlias = Callable[[Tensor], Tensor]

Steps: TypeAlias = Iterator[int]
"""Endless; an item is one step done, and how many samples it took."""

Largest: TypeAlias = Callable[[float], float]
"""The largest of the numbers that the ranks give; the number itself for one process."""


def build(network: Network, data: TensorDataset) -> nn.Module:
    x, y = data.tensors
    if network.spec:
        name, _, args = network.spec.partition(":")
        return nets.build(name, args, tuple(network.shape), int(y.max()) + 1, "", network.dropout)
    width, layers = x.shape[1], list[nn.Module]()
    for size in network.hidden:
        layers.append(nn.Linear(width, size))
        if network.normed:
            layers.append(nn.BatchNorm1d(size))
        layers.append({"relu": nn.ReLU, "sigmoid": nn.Sigmoid}[network.activation]())
        width = size
    return nn.Sequential(*layers, nn.Linear(width, int(y.max()) + 1))


def optimizer_of(network: Network, model: nn.Module, kernel: str = "") -> torch.optim.Optimizer:
    """kernel: fused or foreach; torch's own choice if empty."""
    fused, foreach = kernel == "fused" or None, kernel == "foreach" or None
    if network.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), lr=network.lr, fused=fused, foreach=foreach)
    return torch.optim.SGD(model.parameters(), lr=network.lr, momentum=0.9, fused=fused, foreach=foreach)


def loss_of(z: Tensor, y: Tensor) -> Tensor:
    """Of classes, or of a class for each token."""
    return functional.cross_entropy(z.flatten(0, -2), y.flatten())


def as_function(model: nn.Module) -> Forward:
    """The forward without the modules' own overhead: a tenth of the step of a small network."""

    def function(layer: nn.Module) -> Forward:
        if isinstance(layer, nn.Linear):
            return partial(functional.linear, weight=layer.weight, bias=layer.bias)
        if isinstance(layer, nn.BatchNorm1d):
            numbers = layer.weight, layer.bias, layer.running_mean, layer.running_var
            return lambda x: torch.batch_norm(x, *numbers, True, 0.1, layer.eps, False)
        return torch.relu if isinstance(layer, nn.ReLU) else torch.sigmoid

    if not isinstance(model, nn.Sequential) or not all(isinstance(layer, _PLAIN) for layer in model):
        return model
    functions = [function(layer) for layer in model]

    def forward(x: Tensor) -> Tensor:
        for call in functions:
            x = call(x)
        return x

    return forward


def with_loader(network: Network, data: TensorDataset, backend: str) -> Steps:
    """The loop of the tutorials. backend: of DistributedDataParallel; empty: one process."""
    model: nn.Module = build(network, data)
    sampler: DistributedSampler[tuple[Tensor, ...]] | None = None
    if backend:
        model = DistributedDataParallel(model, broadcast_buffers=backend != NO_EXCHANGE)
        sampler = DistributedSampler(data)
    if backend == NO_EXCHANGE:
        model.register_comm_hook(None, keep_own)
    optimizer = optimizer_of(network, model)
    loader = DataLoader(data, network.batch, shuffle=sampler is None, sampler=sampler)
    for epoch in itertools.count():
        if sampler is not None:
            sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss_of(model(x), y).backward()
            optimizer.step()
            yield len(x)


def keep_own(state: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """Instead of an all-reduce: what this rank has. So DDP costs what it costs without any exchange."""
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def with_accelerate(network: Network, data: TensorDataset) -> Steps:
    """The loop of Accelerate's documentation."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = build(network, data)
    loader = DataLoader(data, network.batch, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer_of(network, model), loader)
    while True:
        for x, y in loader:
            optimizer.zero_grad()
            accelerator.backward(loss_of(model(x), y))
            optimizer.step()
            yield len(x)


def with_lightning(network: Network, data: TensorDataset, backend: str) -> Steps:
    """The loop of Lightning, which calls us: its trainer runs in a thread that stops after each step."""
    import threading
    from queue import SimpleQueue

    import lightning
    from lightning.pytorch.strategies import DDPStrategy

    go, done = SimpleQueue[None](), SimpleQueue[int]()

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = build(network, data)

        def training_step(self, batch: list[Tensor]) -> Tensor:
            return loss_of(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return optimizer_of(network, self)

        def on_train_batch_end(self, outputs: object, batch: list[Tensor], batch_idx: int) -> None:
            done.put(len(batch[0]))
            go.get()

    trainer = lightning.Trainer(
        accelerator="cpu", devices=dist.get_world_size(), strategy=DDPStrategy(process_group_backend=backend),
        max_epochs=-1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        barebones=False,
    )  # fmt: skip
    loader = DataLoader(data, network.batch, shuffle=True)
    threading.Thread(target=trainer.fit, args=(Module(), loader), daemon=True).start()
    while True:
        yield done.get()
        go.put(None)


def in_memory(network: Network, data: TensorDataset, kernel: str, threads: int) -> Steps:
    """The fastest loop of eager torch that we know of."""
    torch.set_num_threads(threads)
    model = build(network, data)
    forward, optimizer = as_function(model), optimizer_of(network, model, kernel)
    x, y = data.tensors
    while True:
        for rows in torch.randperm(len(x)).split(network.batch):
            optimizer.zero_grad(set_to_none=True)
            loss_of(forward(x.index_select(0, rows)), y.index_select(0, rows)).backward()
            optimizer.step()
            yield len(rows)


def turn(steps: Steps, seconds: float, largest: Largest) -> float:
    """Samples per second of this rank over about `seconds`, after a warm-up; the slowest rank's time counts."""
    count = 2
    for _ in range(3):  # the first time nothing is warm, the last time tells how long a step takes
        begun = time.perf_counter()
        for _ in range(count):
            next(steps)
        step_s = largest(time.perf_counter() - begun) / count
        count = max(2, min(WARM_UP_STEPS, round(seconds / step_s)))
    count = max(count, round(seconds / step_s))
    begun = time.perf_counter()
    samples = sum(itertools.islice(steps, count))
    return samples / largest(time.perf_counter() - begun)


def trial(steps: Steps, seconds: float) -> float:
    """Samples per second, soon: where cores are busy two threads may be a hundred times slower than one."""
    for _ in range(5):
        next(steps)
    begun, samples, took = time.perf_counter(), 0, 0.0
    while took < seconds:
        samples += next(steps)
        took = time.perf_counter() - begun
    return samples / took


def fastest(network: Network, data: TensorDataset, most_threads: int, seconds: float) -> tuple[str, int]:
    """(kernel, threads) of `in_memory` with the best median of a few trials, taken in turns."""
    variants = list(itertools.product(("fused", "foreach"), sorted({1, most_threads})))
    rates: dict[tuple[str, int], list[float]] = {variant: [] for variant in variants}
    for _ in range(TRIALS):
        for variant in variants:
            rates[variant].append(trial(in_memory(network, data, *variant), seconds))
    return max(variants, key=lambda variant: statistics.median(rates[variant]))


def largest_of_ranks(value: float) -> float:
    shared = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(shared, dist.ReduceOp.MAX)
    return float(shared)


def main() -> None:
    spec = Spec.unpack(sys.argv[1])
    network, rank, size = spec.network, 0, 1
    largest: Largest = float
    data = TensorDataset(*(torch.from_numpy(np.load(path)) for path in (spec.x, spec.y)))
    if network.spec and not network.spec.startswith("gpt"):
        x, y = data.tensors
        channels = [1, *network.shape] if len(network.shape) == 2 else network.shape
        data = TensorDataset(x.reshape(-1, *channels), y)
    if spec.loop in DISTRIBUTED:
        dist.init_process_group("gloo" if spec.backend == NO_EXCHANGE else spec.backend)
        largest, rank, size = largest_of_ranks, dist.get_rank(), dist.get_world_size()
    best: tuple[str, int] | None = None

    def tell(**record: float | str) -> None:
        if rank == 0:
            print(json.dumps(record), flush=True)

    largest(0.0)
    tell(note="ready")
    with open(spec.go) if rank == 0 else nullcontext() as go:
        while seconds := largest(float(go.readline() or 0) if go else 0.0):
            if spec.loop == "memory":
                best = best or fastest(network, data, spec.threads, seconds / 5)
                steps, note = in_memory(network, data, *best), f"{best[0]}, threads: {best[1]}"
            elif spec.loop == "accelerate":
                steps, note = with_accelerate(network, data), ""
            elif spec.loop == "lightning":
                steps, note = with_lightning(network, data, spec.backend), ""
            else:
                steps, note = with_loader(network, data, spec.backend if spec.loop == "ddp" else ""), ""
            tell(samples_per_s=size * turn(steps, seconds, largest), note=note)
    if spec.loop in DISTRIBUTED:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
