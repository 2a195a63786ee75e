"""Same bits, and losses to the last digit, on any number of ranks."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from support.loop.loop_cases import (
    CLASSES,
    FEATURES,
    IMAGES,
    RANKS,
    ROWS,
    TOKENS,
    Case,
    Y,
    check_same_bits,
    convolutional,
    digest,
    go,
    gpt,
    label,
    made,
    next_token,
    on,
    outcome,
    train_batch,
    trained,
    wide_residual,
)

pytestmark = pytest.mark.forked

NOISY = Case()
IMAGE = Case(convolutional, (IMAGES, Y), batches={"batch_size": 40})
WIDE = Case(wide_residual, (IMAGES, Y), batches={"batch_size": 40})
TEXT = Case(gpt, TOKENS, next_token, batches={"batch_size": 40})


def test_mlp_with_dropout_and_batch_norm() -> None:
    one = check_same_bits(NOISY)
    assert len(one["losses"]) == 2 * -(-ROWS // 32)
    assert one["losses"][-1] < one["losses"][0]
    assert one["rates"][:4] == [0.01, 0.01, 0.005, 0.005]


FEW = (3, 8)
"""Numbers of ranks for the network that takes longest."""
CASES = {"cnn": IMAGE, "wideresnet": WIDE, "gpt": TEXT, "mlp": NOISY}


@pytest.mark.parametrize("name", ["cnn", "wideresnet", "gpt"])
def test_networks(name) -> None:
    check_same_bits(CASES[name], FEW if name == "wideresnet" else RANKS)


@pytest.mark.parametrize("name", CASES)
def test_bf16(name) -> None:
    one = check_same_bits(replace(CASES[name], bf16=True), FEW)
    assert one["digest"] != outcome(1, CASES[name])["digest"], "autocast had no effect"


def groups(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    first, *others = parameters
    return torch.optim.AdamW([{"params": [first], "lr": 0.1, "weight_decay": 0.0}, {"params": others}], lr=0.001)


def test_parameter_groups() -> None:
    one = check_same_bits(replace(NOISY, optimizer=groups, clip=1.0))
    assert one["rates"][0] == 0.1


class Odd(nn.Module):
    """Frozen, tied, unused parameters, one that some shards use, one of whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(FEATURES, 20).requires_grad_(False)
        self.middle = nn.Linear(20, 20)
        self.again = nn.Linear(20, 20)
        self.again.weight = self.middle.weight
        self.idle = nn.Parameter(torch.randn(7))
        self.rare = nn.Parameter(torch.randn(CLASSES))
        self.codes = nn.Parameter(torch.tensor([2, 0, 3, 1]), requires_grad=False)
        self.top = nn.Linear(20, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        z = self.top(torch.tanh(self.again(torch.tanh(self.middle(self.base(x))))))[:, self.codes]
        return z + self.rare if float(x[0, 0]) > 1.0 else z


def test_frozen_tied_unused_parameters() -> None:
    check_same_bits(Case(Odd))

    def work(world: object) -> list[bool]:
        case = Case(Odd)
        before = made(case)[0].state_dict()
        model, optimizer = world.share(*made(case))
        for batch in world.batches(case.data, batch_size=32):
            train_batch(world, model, optimizer, batch)
        assert torch.equal(model.again.weight, model.middle.weight)
        return [torch.equal(before[name], value) for name, value in model.state_dict().items()]

    kept = dict(zip(made(Case(Odd))[0].state_dict(), on(2, work)[0], strict=True))
    assert {name for name, same in kept.items() if same} == {"base.weight", "base.bias", "idle", "codes"}


def test_what_user_code_draws_in_the_loop_belongs_to_the_shard() -> None:
    def work(world: object) -> list[object]:
        after = []
        for model, optimizer, batch in go(world):
            for x, y in batch:
                noise = torch.rand(()) * np.random.rand() * random.random()  # mix-up and the like
                world.backward(label(model, x + noise.item(), y))
            optimizer.step()
            after.append([torch.rand(()).item(), np.random.rand(), random.random()])
        return [digest(model), after]

    (one,) = on(1, work)
    assert on(3, work) == [one] * 3
    assert on(4, work) == [one] * 4


def test_shards_decide_the_bits_not_ranks() -> None:
    def work(shards: int) -> object:
        def train(world: object) -> str:
            model = trained(world, share={"shards": shards}, batch_size=30)
            return digest(model)

        return train

    three = {*on(1, work(3)), *on(2, work(3)), *on(3, work(3))}
    assert len(three) == 1
    assert three != {*on(1, work(5))}, "the shards had no effect"


def test_code_after_a_step_runs_once_per_step() -> None:
    def work(world: object) -> list[object]:
        seen, log = [], []
        for model, optimizer, batch in go(world, epochs=2):
            for x, y in batch:
                world.backward(label(model, x, y))
                seen.append(len(x))
            optimizer.step()
            log.append((batch.epoch, batch.step, batch.samples))
        return [log, sum(seen), world.first]

    for ranks in (1, 3):
        found = on(ranks, work)
        assert sum(count for _, count, _ in found) == 2 * ROWS, "every sample once an epoch"
        expected = [[epoch, step, 32 if step < 3 else ROWS - 96] for epoch in range(2) for step in range(4)]
        assert [log for log, _, _ in found] == [expected] * ranks
        assert [first for _, _, first in found] == [True] + [False] * (ranks - 1)
