"""Parameters that are in no group of the optimizer stay as they are, wherever they lie; the others are trained."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn

from support.loop.loop_cases import ROWS, Case, X, Y, label, made, on, plain, train_batch
from unisono.world import World

pytestmark = pytest.mark.forked

PARTS: dict[str, tuple[int, ...]] = {"ends": (0, 4), "middle": (2,), "last": (4,)}
"""Which layers of `plain` are trained. With the middle one left out, one group lies on both sides of a gap."""
KINDS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
}


def chosen(model: nn.Module, layers: Iterable[int]) -> list[nn.Parameter]:
    return [parameter for layer in layers for parameter in model[layer].parameters()]


def by_torch(kind: str, layers: Iterable[int]) -> list[torch.Tensor]:
    model = made(Case(plain))[0]
    optimizer = KINDS[kind](chosen(model, layers))
    for _ in range(3):
        model.zero_grad()
        label(model, X, Y).backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def test_what_is_in_no_group_is_not_trained() -> None:
    for kind in KINDS:
        for part, layers in PARTS.items():

            def work(world: World, kind: str = kind, layers: tuple[int, ...] = layers) -> list[Any]:
                model = made(Case(plain))[0]
                model, optimizer = world.share(model, KINDS[kind](chosen(model, layers)))
                for batch in world.batches((X, Y), ROWS, epochs=3, shuffle=False):
                    train_batch(world, model, optimizer, batch)
                return [parameter.detach().numpy() for parameter in model.parameters()]

            started, expected = list(made(Case(plain))[0].parameters()), by_torch(kind, layers)
            for ranks in (1, 3):
                found = [torch.from_numpy(values.copy()) for values in on(ranks, work)[0]]
                for number, (begin, end, wanted) in enumerate(zip(started, found, expected, strict=True)):
                    trained = number // 2 * 2 in layers  # two parameters a layer; layers 1 and 3 have none
                    assert torch.equal(begin, end) != trained, f"{kind}, {part}: parameter {number} on {ranks} ranks"
                    torch.testing.assert_close(end, wanted, rtol=1e-4, atol=1e-6)
