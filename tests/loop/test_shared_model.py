"""What `world.share` and `world.batches` refuse: each a message with a hint on every rank, and no hang."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.optim import LBFGS, SGD, Adam, AdamW, RMSprop
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from support.loop.loop_cases import Case, X, Y, all_of, label, made, plain
from support.loop.refusals import check_refused, refused
from unisono.comm.topology import shared_machine
from unisono.world import World

pytestmark = pytest.mark.forked

CASE = Case()


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


BATCHES = {
    r"IterableDataset: its items have no numbers[\s\S]*map-style": lambda world: world.batches(Endless(), 32),
    r"given a DataLoader[\s\S]*loader\.dataset": lambda world: world.batches(DataLoader(TensorDataset(X, Y), 32), 32),
    "given a generator": lambda world: world.batches((x for x in X), 32),
    r"the data have \[10, 102\] rows": lambda world: world.batches((X, Y[:10]), 32),
    "there are 0 samples": lambda world: world.batches((X[:0], Y[:0]), 32),
    "batch_size is '32'": lambda world: world.batches((X, Y), "32"),
    "batch_size is 0": lambda world: world.batches((X, Y), 0),
    "epochs is -1": lambda world: world.batches((X, Y), 32, epochs=-1),
    "epochs is -1\n": lambda world: world.epochs(-1),
    "leaves no step when the last batch is dropped": lambda world: world.batches((X, Y), 103, drop_last=True),
    "a batch of 1 sample for 2 ranks": lambda world: world.batches((X, Y), world.size - 1),
    r"world\.batches after the world was closed": lambda world: (world.close(), world.batches((X, Y), 32)),
}
UNSHARED = {
    "world.epochs before world.share": lambda world: world.epochs(3),
    r"world\.batches before world\.share": lambda world: world.batches((X, Y), 32),
    r"world\.backward before world\.share": lambda world: world.backward(label(plain(), X, Y)),
    r"world\.share after the world was closed": lambda world: (world.close(), world.share(*made(CASE))),
    "1 shards for 2 ranks leave ranks without work": lambda world: world.share(*made(CASE), shards=1),
    "clip -1": lambda world: world.share(*made(CASE), clip=-1.0),
}


@pytest.mark.parametrize("message", BATCHES)
def test_batches(message):
    check_refused(message, lambda world: (world.share(*made(CASE)), BATCHES[message](world)))


@pytest.mark.parametrize("message", UNSHARED)
def test_before_a_model_is_shared(message):
    check_refused(message, UNSHARED[message])


@refused(r"world\.backward after the world was closed")
def test_a_batch_after_the_end(world: World) -> None:
    model, _ = world.share(*made(CASE))
    batches = world.batches((X, Y), 32)
    world.close()
    for batch in batches:
        all_of(world, model, batch)


class Mine(AdamW):
    """Whatever it does: it is not torch's."""


def hooked(model: nn.Module) -> SGD:
    optimizer = SGD(model.parameters(), lr=0.1)
    optimizer.register_step_post_hook(print)
    return optimizer


def two_kinds(model: nn.Module) -> SGD:
    return SGD([{"params": model[0].parameters(), "momentum": 0.9}, {"params": model[2].parameters()}], lr=0.1)


OPTIMIZERS = {
    "world.share was given a generator": lambda model: model.parameters(),
    r"torch\.optim\.\S*LBFGS is not known to update each element by itself": lambda model: LBFGS(model.parameters()),
    r"torch\.optim\.\S*RMSprop is not known": lambda model: RMSprop(model.parameters()),
    r"test_shared_model\.Mine is not known to update each element by itself[\s\S]*SGD, Adam or AdamW": lambda model: (
        Mine(model.parameters())
    ),
    r"SGD has step hooks, which would not be called[\s\S]*after optimizer\.step\(\)": hooked,
    r"Adam\(amsgrad=True\)": lambda model: Adam(model.parameters(), amsgrad=True),
    r"SGD\(dampening=0\.1\)": lambda model: SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.1),
    "the groups of one optimizer need momentum, sgd": two_kinds,
    "the optimizer has 6 parameters that are not the model's": lambda model: SGD(plain().parameters(), lr=0.1),
}


@pytest.mark.parametrize("message", OPTIMIZERS)
def test_optimizers(message):
    def work(world: World) -> None:
        model = plain()
        world.share(model, OPTIMIZERS[message](model))

    check_refused(message, work)


def frozen() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2).requires_grad_(False))


MODELS = {
    r"'0\.weight' of Sequential is of type float64": lambda: plain().double(),
    "is on device meta": lambda: plain().to("meta"),
    r"given a DataParallel, which exchanges gradients itself[\s\S]*model\.module": lambda: nn.DataParallel(plain()),
    "no parameter to train": frozen,
}


@pytest.mark.parametrize("message", MODELS)
def test_models(message):
    def work(world: World) -> None:
        model = MODELS[message]()
        world.share(model, SGD(model.parameters(), lr=0.1))

    check_refused(message, work)


@refused("world.share was given a function")
def test_what_is_no_module(world: World) -> None:
    world.share(plain, SGD(plain().parameters(), lr=0.1))


@pytest.mark.parametrize("what", ["parameters", "buffers that are not saved", "learning rates"])
def test_ranks_whose_models_or_optimizers_differ(what):
    def work(world: World) -> None:
        rank = {what: world.rank}
        torch.manual_seed(rank.get("parameters", 0))
        model = plain()
        model.register_buffer("mask", torch.full((3,), rank.get("buffers that are not saved", 0)), persistent=False)
        world.share(model, SGD(model.parameters(), lr=0.1 + rank.get("learning rates", 0)))

    check_refused("rank 1's model or optimizer differs from rank 0's", work)


@refused("the ranks are on 2 nodes")
def test_ranks_on_several_nodes(world: World) -> None:
    shared_machine.node_key = lambda: bytes(15) + bytes([world.rank])  # of this rank, a process of its own
    world.share(*made(CASE))
