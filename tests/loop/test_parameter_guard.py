"""Parameters after `world.share`: whoever writes to them, moves, replaces or freezes them is told so, on every rank."""

import copy
from typing import Any

import pytest
import torch

from support.loop.loop_cases import Case, all_of, digest, go, label, on, plain, train_batch, walk
from support.loop.refusals import refused
from unisono.errors import RankFailed
from unisono.world import World

pytestmark = pytest.mark.forked


def half_frozen() -> torch.nn.Module:
    model = plain()
    model[0].bias.requires_grad_(False)
    return model


@refused("parameter '0.bias' was unfrozen after world.share")
def test_refuses_unfreezing(world: World) -> None:
    for model, _, _ in walk(world, Case(half_frozen)):
        model[0].bias.requires_grad_(True)


@refused(r"parameter '0\.bias' was written outside optimizer\.step\(\)[\s\S]*averages and target networks")
def test_refuses_writing_to_a_frozen_parameter(world: World) -> None:
    for model, optimizer, batch in go(world, Case(half_frozen)):
        model[0].bias.zero_()
        train_batch(world, model, optimizer, batch)


def test_a_target_network_outside_the_shared_model() -> None:
    """The way that is told to whoever writes to frozen parameters: every rank changes a copy of its own, alike."""

    def work(world: World) -> list[str]:
        target: Any = None
        for model, optimizer, batch in go(world, Case(plain), epochs=2):
            target = target or copy.deepcopy(model).requires_grad_(False)
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


def test_one_rank_that_fails_ends_the_others() -> None:
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
