"""Loops of a user's own that keep snapshots and are left in the middle, for the tests that start them again.

whole = started(program, folder / "whole"); started(program, folder / "run", stop=3)
assert started(program, folder / "run") == rest_of(whole, kept)
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import unisono
from support.training.loop_checkpoint_cases import sha_of
from support.training.snapshot_cases import contents
from unisono.errors import RankFailed, UserError
from unisono.world import World

Net = Callable[[], torch.nn.Module]
Things = Callable[[Any], dict[str, Any]]
"""things(optimizer): what is kept besides the model and its optimizer."""


def linear() -> torch.nn.Module:
    return torch.nn.Linear(12, 2)


class Stopped(Exception):
    """A program was left in the middle of its loops."""


class Loop:
    """What a program does in its loops, written down, and left after `stop` batches in all."""

    def __init__(
        self, world: World, folder: Path, stop: int = 0, net: Net = linear, things: Things = lambda optimizer: {}
    ) -> None:
        torch.set_num_threads(1)
        random.seed(0)
        torch.manual_seed(0)
        model = net()
        self.model, self.optimizer = world.share(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
        self.things = things(self.optimizer)
        self.keeper = unisono.keep(world, folder, every="1steps", **self.things)
        self.world, self.stop, self.batches, self.trace = world, stop, 0, list[Any]()

    def train(self, batch: Any, factor: float = 1.0) -> None:
        for x, y in batch:
            self.world.backward(factor * torch.nn.functional.cross_entropy(self.model(x), y))
        self.optimizer.step()
        self.trace.append([batch.epoch, batch.step, batch.loss])
        self.batches += 1
        if self.batches == self.stop:
            raise Stopped


def started(program: Callable[[Loop], None], folder: Path, *, stop: int = 0, ranks: int = 1, **given: Any) -> list[Any]:
    """What the first rank of a program has written down at its end, or when it was left."""

    def work(world: World) -> list[Any]:
        loop = Loop(world, folder, stop, **given)
        try:
            program(loop)
        except Stopped:
            return loop.trace
        return [*loop.trace, sha_of(loop.model)]

    return next(found for found in unisono.run(work, ranks) if found is not None)


def rest_of(whole: list[Any], kept: int) -> list[Any]:
    """From the batch on that was about to be given when so many were done."""
    batches = [place for place, entry in enumerate(whole) if isinstance(entry, list) and isinstance(entry[0], int)]
    return whole[batches[kept] :]


def refused_by(work: Callable[[World], object], folder: Path) -> str:
    """With which words the work of a rank is refused; what is kept stays as it is."""
    before = contents(folder)
    with pytest.raises(RankFailed) as caught:
        unisono.run(work, 1)
    assert caught.value.kind == UserError.__name__, caught.value
    assert not before or contents(folder) == before
    return str(caught.value)
