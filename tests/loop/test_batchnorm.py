"""Batch norms that look at the whole batch (`sync_batchnorm=True`) against one process that sees all of it."""

import copy
import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from support.loop.loop_cases import CLASSES, IMAGES, Case, X, Y, digest, go, label, made, noisy, on, train_batch, walk
from support.loop.refusals import check_refused
from unisono.data.shards import ShardPlan
from unisono.errors import RankFailed
from unisono.world import World

pytestmark = pytest.mark.forked

ROWS, BATCH, LR = 45, 20, 0.1
"""Two batches of 20 and one of 5: on 3 ranks shards of 7, 7, 6 and of 5: two ranks have none of the last."""
CLOSE = 1e-5 * LR
"""Weights so close have had gradients within 1e-5."""


def rows() -> nn.Module:
    model = noisy()
    model[3] = nn.Identity()  # dropout draws otherwise
    return model


def images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 3, 3, bias=False),
        nn.BatchNorm2d(3, affine=False, momentum=None), nn.Flatten(), nn.Linear(48, CLASSES),
    )  # fmt: skip


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=LR)


CASES = {
    "rows": Case(rows, (X[:ROWS], Y[:ROWS]), optimizer=sgd),
    "images": Case(images, (IMAGES[:ROWS], Y[:ROWS]), optimizer=sgd),
}


def by_torch(case: Case) -> tuple[list[float], dict[str, Tensor]]:
    """Whole batches in the order in which the ranks take them."""
    model, optimizer = made(case)
    losses, (x, y) = [], case.data
    for samples in torch.from_numpy(ShardPlan(ROWS, BATCH, 1, seed=0).order(0)).split(BATCH):
        optimizer.zero_grad()
        loss = label(model, x[samples], y[samples])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model.state_dict()


def by_ranks(case: Case, ranks: int, *, synced: bool = True) -> tuple[list[float], dict[str, Any]]:
    def work(world: World) -> list[Any]:
        model, optimizer = world.share(*made(case), shards=ranks, sync_batchnorm=synced)
        losses = []
        for batch in world.batches(case.data, BATCH):
            train_batch(world, model, optimizer, batch)
            losses.append(batch.loss)
        return [losses, {name: value.numpy() for name, value in model.state_dict().items()}]

    first, *others = on(ranks, work)
    for other in others:
        assert first[0] == other[0]
        assert all(np.array_equal(first[1][name], other[1][name]) for name in first[1])
    return first


def furthest(one: tuple[list[float], Any], two: tuple[list[float], Any]) -> float:
    """Of losses, parameters and running statistics."""
    assert one[1].keys() == two[1].keys()
    values = [float(np.abs(np.asarray(one[1][name]) - np.asarray(two[1][name])).max()) for name in one[1]]
    return max(values + [abs(a - b) for a, b in zip(one[0], two[0], strict=True)])


def test_losses_gradients_and_statistics_are_those_of_one_big_batch() -> None:
    for name, case in CASES.items():
        expected = by_torch(case)
        for ranks in (1, 2, 3, 4):
            far = furthest(by_ranks(case, ranks), expected)
            assert far < CLOSE, f"{name} on {ranks} ranks is {far} away"
        far = furthest(by_ranks(case, 3, synced=False), expected)
        assert far > 1e-3, f"{name}: without it nothing else came out ({far}), so this check could not fail"


def test_bf16() -> None:
    def work(world: World) -> list[Any]:
        for model, optimizer, batch in go(world, CASES["images"], share={"sync_batchnorm": True}, batch_size=BATCH):
            for x, y in batch:
                with torch.autocast("cpu", torch.bfloat16):
                    loss = label(model, x, y)
                world.backward(loss)
            optimizer.step()
        return [digest(model), batch.loss]

    one, other = on(2, work)
    assert one == other
    plain = by_torch(CASES["images"])[0][-1]
    assert 0 < abs(one[1] - plain) < 0.02 * plain


def test_evaluation_copies_and_saved_states_need_nobody() -> None:
    """One rank alone may evaluate, and copy the model: batch norms in evaluation do not wait."""

    def work(world: World) -> list[Any]:
        model, optimizer = world.share(*made(CASES["rows"]), sync_batchnorm=True)
        average = torch.optim.swa_utils.AveragedModel(model)
        for batch in world.batches(CASES["rows"].data, BATCH):
            train_batch(world, model, optimizer, batch)
            if world.first:
                model.eval()
                copy.deepcopy(model)(X)
                scored = label(model, X, Y).item()
                model.train()
            average.update_parameters(model)
        again = rows()
        again.load_state_dict(model.state_dict())
        return [label(again.eval(), X, Y).item() - scored if world.first else 0.0, digest(average.module)]

    (difference, one), (_, other) = on(2, work)
    assert abs(difference) < 1e-6
    assert one == other


def test_torchs_own_layers_become_ours() -> None:
    case = Case(lambda: nn.SyncBatchNorm.convert_sync_batchnorm(rows()), CASES["rows"].data, optimizer=sgd)
    assert furthest(by_ranks(case, 2), by_torch(CASES["rows"])) < CLOSE


def synced(world: World, model: nn.Module, **options: Any) -> Any:
    return world.share(model, sgd(model.parameters()), **{"sync_batchnorm": True} | options)


def trains_outside(world: World) -> None:
    for model, _, _ in walk(world, CASES["rows"], share={"sync_batchnorm": True}, batch_size=BATCH):
        model(X)


def goes_its_own_way(world: World) -> None:
    for model, _, batch in go(world, CASES["rows"], share={"sync_batchnorm": True}, batch_size=BATCH):
        for x, y in batch:
            whole = label(model, x, y)
            world.backward(whole if world.rank else whole + label(model, x, y))


REFUSED: dict[str, Callable[[World], Any]] = {
    r"'1' is torch's SyncBatchNorm, which synchronises GPUs alone[\s\S]*sync_batchnorm=True": lambda world: synced(
        world, nn.SyncBatchNorm.convert_sync_batchnorm(rows()), sync_batchnorm=False, shards=2
    ),
    r"sync_batchnorm=True with 8 shards on 2 ranks[\s\S]*leave shards out": lambda world: synced(
        world, rows(), shards=8
    ),
    "sync_batchnorm=True, and Linear has no batch norm": lambda world: synced(world, nn.Linear(2, 2)),
    r"called in training mode outside a batch[\s\S]*model\.eval\(\)": trains_outside,
    "do not pass the same batch norms": goes_its_own_way,
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message):
    check_refused(message, REFUSED[message])


def test_a_death_ends_the_run() -> None:
    """Nobody could compute two shards at once; the others wait in a batch norm, and are ended."""

    def work(dies: bool) -> Callable[[World], None]:
        def train(world: World) -> None:
            model, optimizer = world.share(*made(CASES["rows"]), sync_batchnorm=True)
            for batch in world.batches(CASES["rows"].data, BATCH, epochs=2):
                for x, y in batch:
                    if dies and world.rank == 1 and batch.epoch == 1:
                        os.kill(os.getpid(), signal.SIGKILL)
                    world.backward(label(model, x, y))
                optimizer.step()

        return train

    on(3, work(dies=False))
    with pytest.raises(RankFailed, match="rank 1: was killed by SIGKILL"):
        on(3, work(dies=True))
