"""Parameters after `world.share`: whoever writes to them, moves, replaces or freezes them is told so, on every rank."""

import copy

import pytest
import torch
from torch import nn

from support.loop.loop_cases import CLASSES, FEATURES, Case, X, Y, all_of, digest, go, label, made, on, plain
from unisono.errors import RankFailed
from unisono.world import World

CASE = Case()


def refuse_writing_to_a_parameter(world: World) -> None:
    r"""parameter '0\.weight' was written outside optimizer\.step\(\)"""
    for model, optimizer, batch in go(world):
        all_of(world, model, batch)
        optimizer.step()
        with torch.no_grad():
            model[0].weight.clamp_(-1.0, 1.0)


def refuse_initialising_after_share(world: World) -> None:
    r"""was written outside optimizer\.step\(\)[\s\S]*before world\.share"""
    model, _ = world.share(*made(CASE))
    nn.init.trunc_normal_(model[0].weight)  # several ranks at once in one memory
    for batch in world.batches((X, Y), 32):
        all_of(world, model, batch)


def refuse_freezing(world: World) -> None:
    """parameter '0.bias' was frozen after world.share"""
    for model, optimizer, batch in go(world):
        all_of(world, model, batch)
        optimizer.step()
        model[0].bias.requires_grad_(False)


def refuse_unfreezing(world: World) -> None:
    """parameter '0.bias' was unfrozen after world.share"""
    model = plain()
    model[0].bias.requires_grad_(False)
    model, optimizer = world.share(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for batch in world.batches((X, Y), 32):
        all_of(world, model, batch)
        optimizer.step()
        model[0].bias.requires_grad_(True)


def refuse_writing_to_a_frozen_parameter(world: World) -> None:
    r"""parameter '0\.bias' was written outside optimizer\.step\(\)[\s\S]*averages and target networks"""
    model = plain()
    model[0].bias.requires_grad_(False)
    model, optimizer = world.share(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for batch in world.batches((X, Y), 32):
        model[0].bias.zero_()
        all_of(world, model, batch)
        optimizer.step()


def check_a_target_network_outside_the_shared_model() -> None:
    """The way that is told to whoever writes to frozen parameters: every rank changes a copy of its own, alike."""

    def work(world: World) -> list[str]:
        model, optimizer = world.share(*made(Case(plain)))
        target = copy.deepcopy(model).requires_grad_(False)
        for batch in world.batches((X, Y), 32, epochs=2):
            for x, y in batch:
                world.backward(label(model, x, y) + (model(x) - target(x)).square().mean())
            optimizer.step()
            with torch.no_grad():
                for slow, fast in zip(target.parameters(), model.parameters(), strict=True):
                    slow.mul_(0.9).add_(fast, alpha=0.1)
        return [digest(model), digest(target)]

    (one,) = on(1, work)
    assert one[0] != one[1]
    for ranks in (2, 3):
        assert on(ranks, work) == [one] * ranks


def refuse_loading_after_share(world: World) -> None:
    r"""was written outside optimizer\.step\(\)[\s\S]*before world\.share"""
    model, _ = world.share(*made(CASE))
    model.load_state_dict(made(CASE)[0].state_dict())
    for batch in world.batches((X, Y), 32):
        all_of(world, model, batch)


def refuse_another_type(world: World) -> None:
    r"""model\.to\(\.\.\.\), half\(\) or double\(\) asked for a gradient[\s\S]*before world\.share"""
    for model, optimizer, batch in go(world):
        all_of(world, model, batch)
        optimizer.step()
        model.bfloat16()


def refuse_another_type_without_gradients(world: World) -> None:
    r"""parameter '0\.weight' was moved out of the memory that ranks share[\s\S]*autocast"""
    for model, optimizer, batch in go(world):
        all_of(world, model, batch)
        optimizer.step()
        model.zero_grad()
        model.double()


def refuse_data_put_in_place(world: World) -> None:
    r"""parameter '0\.bias' was moved out of the memory that ranks share"""
    for model, _, batch in go(world):
        model[0].bias.data = model[0].bias.data.clone()
        all_of(world, model, batch)


def refuse_moving_in_the_middle_of_a_batch(world: World) -> None:
    """was moved out of the memory that ranks share"""
    for model, optimizer, batch in go(world):
        all_of(world, model, batch)
        model[0].bias.data = model[0].bias.data.clone()
        optimizer.step()


def refuse_another_head(world: World) -> None:
    r"""added, removed or replaced after world\.share: 6\.bias, 6\.weight[\s\S]*before world\.share"""
    model, optimizer = world.share(*made(CASE))
    for _ in range(2):
        for batch in world.batches((X, Y), 32):
            all_of(world, model, batch)
            optimizer.step()
        model[6] = nn.Linear(40, CLASSES)


def refuse_one_more_layer(world: World) -> None:
    r"""added, removed or replaced after world\.share: adapter\.weight"""
    model, _ = world.share(*made(CASE))
    model.add_module("adapter", nn.Linear(FEATURES, FEATURES, bias=False))
    for batch in world.batches((X, Y), 32):
        all_of(world, model, batch)


def check_one_rank_that_fails_ends_the_others() -> None:
    """A write on one rank only: the others wait for it, and are ended long before their time-out."""

    def work(world: World) -> None:
        for model, optimizer, batch in go(world):
            all_of(world, model, batch)
            if world.rank == 1:
                model[0].weight.data = model[0].weight.data.clone()
                with torch.no_grad():
                    model[0].weight.zero_()
            optimizer.step()

    with pytest.raises(RankFailed, match="was written outside") as failed:
        on(3, work)
    assert (failed.value.rank, failed.value.kind) == (1, "UserError")
