"""An optimizer that has a state when it is shared goes on with it, as torch's own would."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from support.loop.loop_cases import ROWS, Case, X, Y, label, made, on, plain, train_batch
from support.loop.refusals import check_refused
from unisono.loop.torch_optimizer_state import Entry, LoadedState, read_state, torch_state
from unisono.models.base import Layout
from unisono.world import World

pytestmark = pytest.mark.forked

Make = Callable[[nn.Module], torch.optim.Optimizer]
KINDS: dict[str, Make] = {
    "adam": lambda model: torch.optim.Adam(model.parameters(), lr=0.01, betas=(0.8, 0.99)),
    "adamw": lambda model: torch.optim.AdamW(model.parameters(), lr=0.01),
    "momentum": lambda model: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
    "nesterov": lambda model: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True),
    "groups": lambda model: torch.optim.Adam(
        [{"params": model[0].parameters(), "betas": (0.5, 0.9)}, {"params": model[2:].parameters(), "lr": 0.02}]
    ),
}
BEFORE, AFTER = 20, 3


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, count: int) -> None:
    for _ in range(count):
        optimizer.zero_grad()
        label(model, X, Y).backward()
        optimizer.step()


def trained(make: Make) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = made(Case(plain))[0]
    optimizer = make(model)
    steps(model, optimizer, BEFORE)
    return model, optimizer


def loaded(make: Make) -> tuple[nn.Module, torch.optim.Optimizer]:
    """From what a script of torch's saved."""
    model, optimizer = trained(make)
    again = plain()
    again.load_state_dict(model.state_dict())
    other = make(again)
    other.load_state_dict(optimizer.state_dict())
    return again, other


def go_on(world: World, model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Any]:
    model, shared = world.share(model, optimizer)
    for batch in world.batches((X, Y), ROWS, epochs=AFTER, shuffle=False):
        train_batch(world, model, shared, batch)
    return [
        shared.state_dict()["state"]["unisono"]["steps"],
        [parameter.detach().numpy() for parameter in model.parameters()],
    ]


def test_training_goes_on() -> None:
    for name, make in KINDS.items():
        model, optimizer = trained(make)
        steps(model, optimizer, AFTER)
        expected = [parameter.detach() for parameter in model.parameters()]
        for ranks in (1, 3):
            count, values = on(ranks, lambda world, make=make: go_on(world, *loaded(make)))[0]
            assert count == AFTER + (0 if name in ("momentum", "nesterov") else BEFORE), name
            for value, wanted in zip(values, expected, strict=True):
                torch.testing.assert_close(torch.from_numpy(value.copy()), wanted, rtol=1e-4, atol=2e-6)


def test_a_state_has_an_effect() -> None:
    """Else the check above could not fail."""
    for make in KINDS.values():
        model, optimizer = trained(make)
        fresh = made(Case(plain))[0]
        fresh.load_state_dict(model.state_dict())
        steps(model, optimizer, AFTER)
        steps(fresh, make(fresh), AFTER)
        pairs = zip(model.state_dict().values(), fresh.state_dict().values(), strict=True)
        assert max(float((a - b).abs().max()) for a, b in pairs) > 1e-3


def uneven() -> tuple[nn.Module, torch.optim.Optimizer]:
    """A head that is trained for two steps only, and a bias that never was."""
    model = made(Case(plain))[0]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for head, count in ((False, BEFORE), (True, 2)):
        model[4].requires_grad_(head)
        model[4].bias.requires_grad_(False)
        steps(model, optimizer, count)
    model.requires_grad_(True)
    return model, optimizer


def test_counts_that_differ_go_on() -> None:
    model, optimizer = uneven()
    steps(model, optimizer, AFTER)
    for ranks in (1, 2):
        count, values = on(ranks, lambda world: go_on(world, *uneven()))[0]
        assert count == BEFORE + 2 + AFTER
        for value, wanted in zip(values, model.parameters(), strict=True):
            torch.testing.assert_close(torch.from_numpy(value.copy()), wanted.detach(), rtol=1e-4, atol=2e-6)


def test_bits_come_back_by_way_of_torch() -> None:
    """Numbers of every size, also those that the means of torch cannot hold."""
    bits = np.random.default_rng(7).integers(0, 2**32, (2, 999), dtype=np.uint64).astype(np.uint32).view(np.float32)
    kept = np.where(np.isfinite(bits) & (abs(bits) < 1e37), bits, np.float32(1e-40))
    layout = Layout({"0.weight": (13, 17), "0.bias": (17,)})
    for betas in ((0.9, 0.999), (0.5, 0.9999)):
        model = nn.Sequential(nn.Linear(17, 13))
        model[0].bias = nn.Parameter(torch.zeros(17))
        optimizer = torch.optim.Adam(model.parameters(), betas=betas)
        vectors = {"gradient_sum": kept[0, : layout.length], "square_sum": abs(kept[1, : layout.length])}
        given = LoadedState(vectors, 2**25 + 1, np.array([0, 3]), epochs=5)
        groups = [{**group, "params": [0, 1]} for group in optimizer.param_groups]
        entries = {n: Entry(name, layout.shapes[name], groups[0]) for n, name in enumerate(layout.shapes)}
        optimizer.load_state_dict({"state": torch_state(given, layout, entries), "param_groups": groups})
        found = read_state(optimizer, dict(model.named_parameters()), layout)
        assert (found.steps, found.missed.tolist(), found.epochs) == (2**25 + 1, [0, 3], 5)
        for name, vector in vectors.items():
            assert found.vectors[name].tobytes() == vector.tobytes(), (name, betas)


REFUSED: dict[str, tuple[str, Callable[[World, Any, Any], object]]] = {
    r"the optimizer's state of '0\.bias' is of shape \[\(3,\)": (
        "momentum",
        lambda world, model, state: state[model[0].bias].update(momentum_buffer=torch.zeros(3)),
    ),
    r"the optimizer's state of '0\.weight' has square_avg": (
        "momentum",
        lambda world, model, state: state[model[0].weight].update(square_avg=torch.zeros(3)),
    ),
    "rank 1's model or optimizer differs from rank 0's": (
        "adam",
        lambda world, model, state: state[model[0].bias]["exp_avg"].mul_(1 + world.rank),
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message):
    kind, change = REFUSED[message]

    def work(world: World) -> None:
        model, optimizer = trained(KINDS[kind])
        change(world, model, optimizer.state)
        world.share(model, optimizer)

    check_refused(message, work)
