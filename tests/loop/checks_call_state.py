"""A model that keeps state between calls, in the user's own loop: refused by name at its first call."""

import copy

import torch
from loop_cases import CLASSES, FEATURES, Case, X, Y, all_of, check_same_bits, made, on
from torch import Tensor, nn

from unisono.world import World


class Annealed(nn.Module):
    """A temperature that falls with every call."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.top = nn.Linear(FEATURES, 7), nn.Linear(7, CLASSES)
        self.gate.temperature = 1.0

    def forward(self, x: Tensor) -> Tensor:
        self.gate.temperature *= 0.5
        return self.top(torch.tanh(self.gate(x) / self.gate.temperature))


class Looking(nn.Module):
    """Keeps what is to be looked at, draws, writes into its input, and changes buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(FEATURES, 7), nn.BatchNorm1d(7), nn.Dropout(0.4))
        self.top = nn.Linear(7, CLASSES)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor, *, scale: Tensor) -> Tensor:
        self.calls += 1
        self.hidden = self.body(x)
        self.shapes = {"in": tuple(x.shape)}
        return self.top(self.hidden * scale)


def scaled(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(x.clone(), scale=torch.full((1,), 0.5)), y)


def refuse_state_in_an_attribute(world: World) -> None:
    r"""Linear \('gate' of Annealed\) keeps state in the attribute 'temperature': 1\.0 before a call, 0\.5 after it"""
    model, optimizer = world.share(*made(Case(net=Annealed)))
    for batch in world.batches((X, Y), 24):
        all_of(world, model, batch)
        optimizer.step()


def check_what_only_shows_the_last_call_is_taken() -> None:
    check_same_bits(Case(net=Looking, loss=scaled, batches={"batch_size": 24, "epochs": 1}), (2, 3))


def check_the_check_leaves_nothing_behind() -> None:
    def hooks(world: World) -> list[int]:
        model, optimizer = world.share(*made(Case(net=Looking)))
        copied = copy.deepcopy(model)
        for batch in world.batches((X, Y), 24):
            for x, y in batch:
                world.backward(scaled(model, x, y))
            optimizer.step()
        return [len(each._forward_pre_hooks) for each in (model, copied)] + [int(model.calls)]

    assert on(2, hooks) == [[0, 0, 5]] * 2  # five batches, and no call more
