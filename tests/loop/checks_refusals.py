"""What is refused in the loop itself: each a message with a hint on every rank, and no hang."""

import torch
from torch import nn

from support.loop.loop_cases import Case, X, Y, all_of, go, label, made
from unisono.world import World

CASE = Case()


def refuse_closure(world: World) -> None:
    r"""optimizer\.step was given a closure"""
    for model, optimizer, batch in go(world):
        all_of(world, model, batch)
        optimizer.step(lambda: 1.0)


def refuse_forgotten_backward(world: World) -> None:
    """world.backward was not called for a shard"""
    for model, optimizer, batch in go(world):
        for x, y in batch:
            label(model, x, y)
        optimizer.step()


def refuse_backward_twice(world: World) -> None:
    """outside a batch, or twice for a shard"""
    for model, _, batch in go(world):
        for x, y in batch:
            world.backward(label(model, x, y))
            world.backward(label(model, x, y))


def refuse_backward_after_the_batch(world: World) -> None:
    """outside a batch, or twice for a shard"""
    for model, _, batch in go(world):
        all_of(world, model, batch)
        world.backward(label(model, X, Y))


def refuse_backward_before_a_batch(world: World) -> None:
    """world.backward outside a batch"""
    model, _ = world.share(*made(CASE))
    world.backward(label(model, X, Y))


def refuse_a_loss_that_is_not_a_scalar(world: World) -> None:
    r"""world\.backward was given a tensor of shape \(\d+, 4\)[\s\S]*mean loss"""
    for model, _, batch in go(world):
        for x, _y in batch:
            world.backward(model(x))


def refuse_a_loss_that_is_a_number(world: World) -> None:
    r"""world\.backward was given a float"""
    for model, _, batch in go(world):
        for x, y in batch:
            world.backward(label(model, x, y).item())


def refuse_a_loss_without_grad(world: World) -> None:
    """depends on no parameter that is trained"""
    for model, _, batch in go(world):
        for x, y in batch:
            world.backward(label(model, x, y).detach())


def refuse_a_batch_without_weight(world: World) -> None:
    """all shards of a batch weigh 0"""
    for model, _, batch in go(world):
        for x, y in batch:
            world.backward(label(model, x, y), weight=0)


def refuse_a_negative_weight(world: World) -> None:
    """weight is -1"""
    for model, _, batch in go(world):
        for x, y in batch:
            world.backward(label(model, x, y), weight=-1)


def refuse_no_weight_with_a_loss_that_is_not_finite(world: World) -> None:
    """a shard of weight 0 has the loss nan"""
    for model, _, batch in go(world):
        for x, y in batch:
            world.backward(label(model, x, y) * float("nan"), weight=0)


def refuse_forgotten_step(world: World) -> None:
    r"""optimizer\.step\(\) was not called for the last batch"""
    for model, _, batch in go(world):
        all_of(world, model, batch)


def refuse_forgotten_last_step(world: World) -> None:
    r"""optimizer\.step\(\) was not called for the last batch"""
    model, _ = world.share(*made(CASE))
    for batch in world.batches((X, Y), 102):
        all_of(world, model, batch)


def refuse_step_twice(world: World) -> None:
    r"""optimizer\.step\(\) without gradients"""
    for model, optimizer, batch in go(world):
        all_of(world, model, batch)
        optimizer.step()
        optimizer.step()


def refuse_a_batch_left_early(world: World) -> None:
    """batch 0 of epoch 0 was left before all of its shards were gone through"""
    for model, _, batch in go(world):
        for x, y in batch:
            world.backward(label(model, x, y))
            break


def refuse_a_step_after_a_batch_left_early(world: World) -> None:
    """without gradients"""
    for model, optimizer, batch in go(world):
        for x, y in batch:
            world.backward(label(model, x, y))
            break
        optimizer.step()


def refuse_a_batch_gone_through_twice(world: World) -> None:
    """a batch was gone through twice"""
    for model, _, batch in go(world):
        all_of(world, model, batch)
        all_of(world, model, batch)


def refuse_a_batch_begun_again(world: World) -> None:
    """a batch was gone through twice"""
    for model, _, batch in go(world):
        for x, y in batch:
            world.backward(label(model, x, y))
            break
        all_of(world, model, batch)


def refuse_a_loss_that_is_not_known_yet(world: World) -> None:
    r"""batch\.loss is not known yet"""
    for *_, batch in go(world):
        print(batch.loss)


def refuse_a_momentum_that_changes(world: World) -> None:
    r"""betas of parameter group 0 was changed[\s\S]*cycle_momentum=False"""
    model, optimizer = world.share(*made(CASE))
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 100)
    for batch in world.batches((X, Y), 32):
        all_of(world, model, batch)
        optimizer.step()
        scheduler.step()


def refuse_another_parameter_group(world: World) -> None:
    """a parameter group was added after world.share"""
    _, optimizer = world.share(*made(CASE))
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
