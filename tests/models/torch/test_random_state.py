"""Whichever generator a module draws from, what it draws is the shard's."""

import random

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from support.models.engine_cases import CLASSES, FEATURES, ROWS, bound, call, samples
from unisono.errors import UserError
from unisono.models.torch.model import TorchModel
from unisono.models.torch.random_state import ALL, drawn_since, generator_states, restore_states, seed_from
from unisono.rng import generator
from unisono.strategies.external.module_placement import probe

DRAWS = {"torch": lambda: torch.rand(()).item(), "numpy": np.random.rand, "python": random.random}


class Drawing(nn.Module):
    """Leaves out a layer by chance, as stochastic depth does; `late`: not when it is tried out with made-up samples."""

    def __init__(self, kind: str, *, late: bool = False) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES)
        self.norm = nn.BatchNorm1d(8)
        self.kind, self.late = kind, late

    def forward(self, x: Tensor) -> Tensor:
        z = self.norm(torch.relu(self.first(x)))
        if self.late and len(x) < 4:
            return self.last(z)
        return self.last(z * DRAWS[self.kind]())


def ready(kind: str, *, late: bool = False, together: bool = False) -> TorchModel:
    return bound(lambda: Drawing(kind, late=late), ROWS, sync_batchnorm=together)[0]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kind", DRAWS)
def test_a_shard_alone_has_the_bits_of_the_shard_among_others(kind, late):
    x, y = samples(ROWS, 4, 5)
    grads, _ = call(ready(kind, late=late), x, y)
    assert not np.allclose(grads[0], grads[1])
    for shard in range(4):
        model = ready(kind, late=late)
        for _ in range(2):  # whatever was drawn before
            DRAWS[kind]()
            alone, _ = call(model, x[shard : shard + 1].copy(), y[shard : shard + 1].copy(), first=shard)
            assert alone.tobytes() == grads[shard : shard + 1].tobytes()


@pytest.mark.parametrize("kind", DRAWS)
def test_shards_that_meet_in_the_middle_draw_their_own(kind):
    """They take turns at every batch norm: each finds the generators where it left them."""
    x, y = samples(ROWS, 3, 5)
    model = ready(kind, together=True)
    first = call(model, x, y)[0].copy()
    DRAWS[kind]()
    assert call(model, x, y)[0].tobytes() == first.tobytes()


@pytest.mark.parametrize("kind", DRAWS)
def test_a_probe_tells_the_generators_apart(kind):
    module = Drawing(kind)
    assert probe(module, lambda: module(torch.ones(4, FEATURES)).sum()).draws == {kind}


def test_places_are_found_again():
    seed_from(generator(1, "dropout"), ALL)
    before = generator_states()
    drawn = [draw() for draw in DRAWS.values()]
    assert drawn_since(before) == ALL
    restore_states(before)
    assert drawn_since(before) == frozenset()
    assert [draw() for draw in DRAWS.values()] == drawn
    seed_from(generator(1, "dropout"), frozenset({"python"}))
    assert random.random() == drawn[2]
    assert np.random.rand() != drawn[1]


@pytest.mark.parametrize(("kind", "name"), [("numpy", "NumPy"), ("python", "Python")])
def test_draws_that_begin_later_are_told_before_an_epoch_counts(kind, name):
    """They were not seeded: whoever computed that shard after other ones drew something else."""
    model = ready(kind, late=True)
    (few, labels), (many, more) = samples(ROWS, 1, 3), samples(ROWS, 1, 5)
    call(model, few, labels)
    model.evaluate(few, labels)
    call(model, few, labels)
    call(model, many, more)
    with pytest.raises(UserError, match=f"has begun to draw from the generator of {name} after its first samples"):
        model.check_reproducible()
    call(model, many, more)
    with pytest.raises(UserError, match=f"has begun to draw from the generator of {name} after its first samples"):
        model.evaluate(few, labels)


def test_draws_between_two_epochs_are_not_the_module_s():
    model = ready("numpy", late=True)
    x, y = samples(ROWS, 1, 3)
    for _ in range(2):
        call(model, x, y)
        model.check_reproducible()
        np.random.rand()


@pytest.mark.parametrize("kind", DRAWS)
def test_draws_that_were_seen_at_first_may_go_on(kind):
    model = ready(kind)
    x, y = samples(ROWS, 1, 5)
    for _ in range(2):
        call(model, x, y)
        DRAWS[kind]()
        model.evaluate(x, y)
