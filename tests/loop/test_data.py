"""What `world.batches` takes, and how it walks through it."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset

from support.loop.loop_cases import (
    FEATURES,
    ROWS,
    Case,
    X,
    Y,
    check_same_bits,
    digest,
    label,
    made,
    on,
    plain,
    train_batch,
)
from unisono.world import World

pytestmark = pytest.mark.forked


class Augmented(Dataset[Any]):
    """Draws from all three generators for every item."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return X[index] * random.random() + torch.rand(FEATURES) * np.random.rand(), Y[index]


def seen(*arguments: Any, **options: Any) -> Callable[[World], list[Any]]:
    """What one rank sees: (epoch, step, first features) of its rows."""

    def work(world: World) -> list[Any]:
        model, optimizer = world.share(*made(Case(plain)))
        found = []
        for batch in world.batches(*arguments, **options):
            for x, y in batch:
                found += [[batch.epoch, batch.step, round(value, 4)] for value in x[:, 0].tolist()]
                world.backward(label(model, x, y))
            optimizer.step()
        return found

    return work


def rows_of(found: list[list[Any]]) -> list[float]:
    return [value for *_, value in (row for rank in found for row in rank)]


FIRST = [round(value, 4) for value in X[:, 0].tolist()]


def test_every_sample_once_an_epoch() -> None:
    for ranks in (1, 3):
        found = on(ranks, seen((X, Y), 32))
        assert sorted(rows_of(found)) == sorted(FIRST)
        assert rows_of(found) != FIRST, "not shuffled"
    assert sorted(rows_of(on(2, seen((X, Y), 1000)))) == sorted(FIRST), "a batch larger than the data"


def test_unshuffled() -> None:
    assert rows_of(on(1, seen((X, Y), 32, shuffle=False))) == FIRST
    steps = sorted(row for rank in on(3, seen((X, Y), 32, shuffle=False)) for row in rank)
    assert steps == sorted([0, place // 32, value] for place, value in enumerate(FIRST))


def test_the_ragged_end_and_drop_last() -> None:
    """102 rows in batches of 32: three, and 6 rows, which are 2 shards: the third rank has nothing to do."""
    found = on(3, seen((X, Y), 32, shuffle=False))
    assert [sum(row[1] == 3 for row in rank) for rank in found] == [4, 2, 0]
    dropped = on(3, seen((X, Y), 32, shuffle=False, drop_last=True))
    assert sorted(rows_of(dropped)) == sorted(FIRST[:96])
    check_same_bits(Case(batches={"batch_size": 48, "drop_last": True}), (3, 8))


def test_epochs_are_counted_on() -> None:
    """Three epochs at once, or one by one, or by asking anew: the same order and the same bits."""

    def work(how: str) -> Callable[[World], list[Any]]:
        def train(world: World) -> list[Any]:
            model, optimizer = world.share(*made(Case()))
            loader = world.batches((X, Y), 40, epochs=3 if how == "at once" else 1)
            epochs = []
            for _ in range(1 if how == "at once" else 3):
                for batch in world.batches((X, Y), 40) if how == "anew" else loader:
                    train_batch(world, model, optimizer, batch)
                    epochs.append(batch.epoch)
            return [digest(model), epochs, len(loader)]

        return train

    one, _ = on(2, work("at once"))
    assert one[1] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert one[2] == 9
    for how in ("one by one", "anew"):
        assert on(1, work(how))[0][:2] == one[:2], how


def test_leaving_the_outer_loop_early() -> None:
    def work(world: World) -> list[Any]:
        model, optimizer = world.share(*made(Case()))
        for batch in world.batches((X, Y), 32, epochs=10):
            train_batch(world, model, optimizer, batch)
            if batch.epoch == 1:
                break
        left = batch.step
        for batch in world.batches((X, Y), 32):
            for _ in batch:
                break
            break  # in the middle of a batch: nothing was begun
        for batch in world.batches((X, Y), 32):
            train_batch(world, model, optimizer, batch)
        return [left, batch.epoch, optimizer.state_dict()["state"]["unisono"]["steps"], digest(model)]

    (one,) = on(1, work)
    assert one[:3] == [0, 2, 5 + 4]  # an epoch counts when a batch of it has been gone through
    assert on(3, work) == [one] * 3


def test_two_loaders_in_turn() -> None:
    def work(world: World) -> list[Any]:
        model, optimizer = world.share(*made(Case()))
        for pair in zip(world.batches((X, Y), 32), world.batches((X.flip(0), Y.flip(0)), 32), strict=True):
            for batch in pair:
                train_batch(world, model, optimizer, batch)
        return [digest(model), optimizer.state_dict()["state"]["unisono"]["steps"]]

    (one,) = on(1, work)
    assert one[1] == 8
    assert on(3, work) == [one] * 3


def test_random_augmentation_with_and_without_workers() -> None:
    def work(workers: int) -> Callable[[World], str]:
        def train(world: World) -> str:
            model, optimizer = world.share(*made(Case()))
            for batch in world.batches(Augmented(), 51, workers=workers):
                train_batch(world, model, optimizer, batch)
            return digest(model)

        return train

    found = {*on(1, work(0)), *on(3, work(0)), *on(1, work(2)), *on(2, work(1))}
    assert len(found) == 1
    assert found != {digest(made(Case())[0])}


def test_kinds_of_data_are_one() -> None:
    pairs = [(x, y) for x, y in zip(X, Y, strict=True)]
    kinds = [
        (X, Y), [X, Y], (X.numpy(), Y.numpy()), TensorDataset(X, Y), pairs, Subset(TensorDataset(X, Y), range(ROWS)),
    ]  # fmt: skip
    first, *others = [on(1, seen(kind, 32)) for kind in kinds]
    assert all(other == first for other in others)


def test_a_single_tensor() -> None:
    def work(world: World) -> list[int]:
        model, optimizer = world.share(*made(Case(plain)))
        shapes = []
        for batch in world.batches(X, 102):
            for x in batch:
                shapes += [*x.shape]
                world.backward(model(x).square().mean())
            optimizer.step()
        return shapes

    assert on(1, work) == [[13, FEATURES] * 7 + [11, FEATURES]]


class Endless(Dataset[Any]):
    """More items than there is memory to number them."""

    def __len__(self) -> int:
        return 10**15 + 7

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return X[index % ROWS], Y[index % ROWS]


def test_an_order_that_stays_as_it_is_takes_no_memory() -> None:
    def work(world: World) -> list[int]:
        model, optimizer = world.share(*made(Case(plain)))
        steps = []
        for batch in world.batches(Endless(), 24, shuffle=False):
            for x, y in batch:
                steps.append(len(x))
                world.backward(label(model, x, y))
            optimizer.step()
            if batch.step == 1:
                break
        return steps

    assert on(2, work) == [[3] * 8] * 2
