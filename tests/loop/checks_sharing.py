"""What `world.share` and `world.batches` refuse: each a message with a hint on every rank, and no hang."""

from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from support.loop.loop_cases import Case, X, Y, label, made, plain
from unisono.comm import node
from unisono.world import World

CASE = Case()


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


def refuse_iterable_dataset(world: World) -> None:
    r"""IterableDataset: its items have no numbers[\s\S]*map-style"""
    world.share(*made(CASE))
    world.batches(Endless(), 32)


def refuse_data_loader(world: World) -> None:
    r"""given a DataLoader[\s\S]*loader\.dataset"""
    world.share(*made(CASE))
    world.batches(DataLoader(TensorDataset(X, Y), 32), 32)


def refuse_a_generator(world: World) -> None:
    """given a generator"""
    world.share(*made(CASE))
    world.batches((x for x in X), 32)


def refuse_tensors_of_unequal_lengths(world: World) -> None:
    r"""the data have \[10, 102\] rows"""
    world.share(*made(CASE))
    world.batches((X, Y[:10]), 32)


def refuse_no_data(world: World) -> None:
    """there are 0 samples"""
    world.share(*made(CASE))
    world.batches((X[:0], Y[:0]), 32)


def refuse_a_batch_size_that_is_no_number(world: World) -> None:
    """batch_size is '32'"""
    world.share(*made(CASE))
    world.batches((X, Y), "32")


def refuse_a_batch_of_nothing(world: World) -> None:
    """batch_size is 0"""
    world.share(*made(CASE))
    world.batches((X, Y), 0)


def refuse_negative_epochs(world: World) -> None:
    """epochs is -1"""
    world.share(*made(CASE))
    world.batches((X, Y), 32, epochs=-1)


def refuse_fewer_epochs_than_none(world: World) -> None:
    """epochs is -1"""
    world.share(*made(CASE))
    world.epochs(-1)


def refuse_epochs_before_a_model_is_shared(world: World) -> None:
    """world.epochs before world.share"""
    world.epochs(3)


def refuse_dropping_everything(world: World) -> None:
    """leaves no step when the last batch is dropped"""
    world.share(*made(CASE))
    world.batches((X, Y), 103, drop_last=True)


def refuse_a_batch_smaller_than_the_ranks(world: World) -> None:
    """a batch of 1 sample for 2 ranks"""
    world.share(*made(CASE))
    world.batches((X, Y), world.size - 1)


def refuse_fewer_shards_than_ranks(world: World) -> None:
    """1 shards for 2 ranks leave ranks without work"""
    world.share(*made(CASE), shards=1)


def refuse_batches_before_share(world: World) -> None:
    r"""world\.batches before world\.share"""
    world.batches((X, Y), 32)


def refuse_backward_before_share(world: World) -> None:
    r"""world\.backward before world\.share"""
    world.backward(label(plain(), X, Y))


def refuse_share_twice(world: World) -> None:
    r"""world\.share was called twice"""
    world.share(*made(CASE))
    world.share(*made(CASE))


def refuse_batches_after_the_end(world: World) -> None:
    r"""world\.batches after the world was closed"""
    world.share(*made(CASE))
    world.close()
    world.batches((X, Y), 32)


def refuse_a_batch_after_the_end(world: World) -> None:
    r"""world\.backward after the world was closed"""
    model, _ = world.share(*made(CASE))
    batches = world.batches((X, Y), 32)
    world.close()
    for batch in batches:
        for x, y in batch:
            world.backward(label(model, x, y))


def refuse_share_after_the_end(world: World) -> None:
    r"""world\.share after the world was closed"""
    world.close()
    world.share(*made(CASE))


def refuse_parameters_that_differ(world: World) -> None:
    r"""rank 1's model or optimizer differs from rank 0's"""
    torch.manual_seed(world.rank)
    model = plain()
    world.share(model, torch.optim.SGD(model.parameters(), lr=0.1))


def refuse_buffers_that_are_not_saved_and_differ(world: World) -> None:
    r"""rank 1's model or optimizer differs from rank 0's"""
    model, optimizer = made(CASE)
    model.register_buffer("mask", torch.full((3,), world.rank), persistent=False)
    world.share(model, optimizer)


def refuse_learning_rates_that_differ(world: World) -> None:
    r"""rank 1's model or optimizer differs from rank 0's"""
    model, _ = made(CASE)
    world.share(model, torch.optim.SGD(model.parameters(), lr=0.1 + world.rank))


def refuse_ranks_on_several_nodes(world: World) -> None:
    r"""the ranks are on 2 nodes"""
    node.node_key = lambda: bytes(15) + bytes([world.rank])  # of this rank, a process of its own
    world.share(*made(CASE))


def refuse_float64(world: World) -> None:
    r"""'0\.weight' of Sequential is of type float64"""
    model = plain().double()
    world.share(model, torch.optim.SGD(model.parameters(), lr=0.1))


def refuse_another_device(world: World) -> None:
    """is on device meta"""
    model = plain().to("meta")
    world.share(model, torch.optim.SGD(model.parameters(), lr=0.1))


def refuse_what_is_no_module(world: World) -> None:
    """world.share was given a function"""
    world.share(plain, torch.optim.SGD(plain().parameters(), lr=0.1))


def refuse_a_wrapped_module(world: World) -> None:
    r"""given a DataParallel, which exchanges gradients itself[\s\S]*model\.module"""
    model = nn.DataParallel(plain())
    world.share(model, torch.optim.SGD(model.parameters(), lr=0.1))


def refuse_what_is_no_optimizer(world: World) -> None:
    """world.share was given a generator"""
    model = plain()
    world.share(model, model.parameters())


def refuse_lbfgs(world: World) -> None:
    r"""torch\.optim\.\S*LBFGS is not known to update each element by itself"""
    model = plain()
    world.share(model, torch.optim.LBFGS(model.parameters()))


def refuse_rmsprop(world: World) -> None:
    r"""torch\.optim\.\S*RMSprop is not known"""
    model = plain()
    world.share(model, torch.optim.RMSprop(model.parameters()))


class Mine(torch.optim.AdamW):
    """Whatever it does: it is not torch's."""


def refuse_a_subclass_of_a_known_optimizer(world: World) -> None:
    r"""checks_sharing\.Mine is not known to update each element by itself[\s\S]*SGD, Adam or AdamW"""
    model = plain()
    world.share(model, Mine(model.parameters()))


def refuse_step_hooks(world: World) -> None:
    r"""SGD has step hooks, which would not be called[\s\S]*after optimizer\.step\(\)"""
    model = plain()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_post_hook(print)
    world.share(model, optimizer)


def refuse_step_hooks_later(world: World) -> None:
    r"""optimizer\.register_step_pre_hook after world\.share"""
    _, optimizer = world.share(*made(CASE))
    optimizer.register_step_pre_hook(print)


def refuse_amsgrad(world: World) -> None:
    r"""Adam\(amsgrad=True\)"""
    model = plain()
    world.share(model, torch.optim.Adam(model.parameters(), amsgrad=True))


def refuse_dampening(world: World) -> None:
    r"""SGD\(dampening=0\.1\)"""
    model = plain()
    world.share(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.1))


def refuse_groups_of_two_kinds(world: World) -> None:
    """the groups of one optimizer need momentum, sgd"""
    model = plain()
    groups = [{"params": model[0].parameters(), "momentum": 0.9}, {"params": model[2].parameters()}]
    world.share(model, torch.optim.SGD(groups, lr=0.1))


def refuse_parameters_of_another_model(world: World) -> None:
    """the optimizer has 6 parameters that are not the model's"""
    world.share(plain(), torch.optim.SGD(plain().parameters(), lr=0.1))


def refuse_a_negative_clip(world: World) -> None:
    """clip -1"""
    world.share(*made(CASE), clip=-1.0)


def refuse_nothing_to_train(world: World) -> None:
    """no parameter to train"""
    model = nn.Sequential(nn.Linear(2, 2).requires_grad_(False))
    world.share(model, torch.optim.SGD(model.parameters(), lr=0.1))
