"""Who asks for gradients, computes them alone or steps alone is refused: a message with a hint on every rank."""

import torch
from loop_cases import Case, X, Y, all_of, go, label, made
from torch import nn

from unisono.world import World

CASE = Case()


def refuse_clip_grad_norm(world: World) -> None:
    r"""clip_grad_norm_.* asked for a gradient[\s\S]*clip=1\.0"""
    for model, _, batch in go(world):
        all_of(world, model, batch)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def refuse_clip_grad_norm_in_the_inner_loop(world: World) -> None:
    r"""clip_grad_norm_.* asked for a gradient[\s\S]*clip=1\.0"""
    for model, _, batch in go(world):
        for x, y in batch:
            model.zero_grad()
            world.backward(label(model, x, y))
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def refuse_clip_grad_value(world: World) -> None:
    """clip_grad_value_ asked for a gradient"""
    for model, _, batch in go(world):
        all_of(world, model, batch)
        nn.utils.clip_grad_value_(model.parameters(), 1.0)


def refuse_own_norms(world: World) -> None:
    """norm.* asked for a gradient"""
    for model, _, batch in go(world):
        all_of(world, model, batch)
        print(model[0].weight.grad.norm())


def refuse_unscale(world: World) -> None:
    r"""GradScaler asked for a gradient[\s\S]*bfloat16"""
    scaler = torch.amp.GradScaler("cpu")
    for model, optimizer, batch in go(world):
        for x, y in batch:
            world.backward(label(model, x, y))
            scaler.scale(torch.ones(()))
        scaler.unscale_(optimizer)


def refuse_scaler_step(world: World) -> None:
    """GradScaler asked for a gradient"""
    scaler = torch.amp.GradScaler("cpu")
    for model, optimizer, batch in go(world):
        for x, y in batch:
            world.backward(label(model, x, y))
            scaler.scale(torch.ones(()))
        scaler.step(optimizer)


def refuse_scaled_loss(world: World) -> None:
    r"""loss\.backward\(\) was called"""
    for model, _, batch in go(world):
        for x, y in batch:
            torch.amp.GradScaler("cpu").scale(label(model, x, y)).backward()


def refuse_loss_backward(world: World) -> None:
    r"""loss\.backward\(\) was called[\s\S]*world\.backward\(loss\)"""
    for model, _, batch in go(world):
        for x, y in batch:
            label(model, x, y).backward()


def refuse_loss_backward_after_zero_grad(world: World) -> None:
    """world.backward was not called for a shard"""
    for model, _, batch in go(world):
        model.zero_grad()
        for x, y in batch:
            label(model, x, y).backward()


def refuse_the_unshared_optimizer(world: World) -> None:
    """an optimizer that is not shared was stepped"""
    model, optimizer = made(CASE)
    world.share(model, optimizer)
    for batch in world.batches((X, Y), 32):
        all_of(world, model, batch)
        optimizer.step()
