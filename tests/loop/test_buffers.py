"""Buffers after `world.share`: what is written to them after a step stays; elsewhere it is refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support.loop.loop_cases import FEATURES, ROWS, Case, X, Y, all_of, go, label, made, noisy, on, plain, walk
from support.loop.refusals import refused
from unisono.world import World

pytestmark = pytest.mark.forked


class Annealed(nn.Module):
    """Divides by a temperature, which the loop lowers; counts calls in a type of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = plain()
        self.register_buffer("temperature", torch.tensor(4.0))
        self.register_buffer("mask", torch.ones(FEATURES, dtype=torch.bool), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x * self.mask) / self.temperature


def in_place(model: nn.Module, step: int) -> None:
    model.temperature.mul_(0.5)
    model.mask[step] = False


def anew(model: nn.Module, step: int) -> None:
    model.temperature = model.temperature * 0.5
    model.mask = torch.arange(FEATURES) > step


CASE = Case(Annealed, optimizer=lambda p: torch.optim.SGD(p, lr=0.1))


def by_torch(write: Callable[[nn.Module, int], None]) -> tuple[list[float], list[Tensor]]:
    model, optimizer = made(CASE)
    losses = []
    for step in range(4):
        optimizer.zero_grad()
        loss = label(model, X, Y)
        loss.backward()
        optimizer.step()
        write(model, step)
        losses.append(loss.item())
    return losses, [*(p.detach() for p in model.parameters()), model.temperature]


def by_ranks(write: Callable[[nn.Module, int], None], ranks: int) -> list[Any]:
    def work(world: World) -> list[Any]:
        losses = []
        for model, _, batch in walk(world, CASE, batch_size=ROWS, epochs=4, shuffle=False):
            write(model, batch.epoch)
            losses.append(batch.loss)
        values = [*model.parameters(), model.temperature]
        return [losses, [value.detach().numpy() for value in values]]

    found = on(ranks, work)
    assert all(str(other) == str(found[0]) for other in found[1:])
    return found[0]


def test_what_is_written_after_a_step_stays() -> None:
    for write in (in_place, anew):
        losses, values = by_torch(write)
        assert losses[-1] != losses[0]
        one = by_ranks(write, 1)
        for ranks in (1, 2, 3):
            found = by_ranks(write, ranks)
            assert str(found) == str(one)
            assert max(abs(a - b) for a, b in zip(found[0], losses, strict=True)) < 1e-5, (found[0], losses)
            for value, wanted in zip(found[1], values, strict=True):
                torch.testing.assert_close(torch.tensor(value), wanted, rtol=1e-4, atol=1e-6)


def test_what_is_written_before_the_first_batch_stays() -> None:
    def work(world: World) -> list[float]:
        model, optimizer = world.share(*made(CASE))
        model.temperature.fill_(2.0)
        seen = []
        for batch in world.batches((X, Y), 64):
            for x, y in batch:
                seen.append(model.temperature.item())
                world.backward(label(model, x, y))
            optimizer.step()
        return [*seen, model.temperature.item()]

    assert {value for found in on(2, work) for value in found} == {2.0}


@refused(r"buffer 'temperature' was written between the last shard of a batch and optimizer\.step\(\)")
def test_refuses_writing_before_the_step(world: World) -> None:
    for model, optimizer, batch in go(world, CASE):
        all_of(world, model, batch)
        model.temperature.mul_(0.5)
        optimizer.step()


@refused("rank 1 differs from rank 0 in what was written to buffers")
def test_refuses_writing_by_rank(world: World) -> None:
    for model, _, _ in walk(world, CASE):
        model.temperature.mul_(1.0 + world.rank)


@refused(r"in what was written to buffers\n[\s\S]*model\.eval\(\)")
def test_refuses_evaluating_in_training_mode_on_one_rank(world: World) -> None:
    for model, _, _ in walk(world, Case(noisy)):
        if world.first:
            model(X)
