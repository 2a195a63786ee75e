"""Ranks that do not do the same are told so, by name, instead of training on."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from support.loop.loop_cases import Case, X, Y, made, on, plain, train_batch
from support.loop.refusals import check_refused, refused
from unisono.errors import UserError
from unisono.world import World

pytestmark = pytest.mark.forked


def loop(world: World, data: Any = (X, Y), batch_size: int = 32, **options: Any) -> None:
    model, optimizer = world.share(*made(Case(plain)))
    for batch in world.batches(data, batch_size, **options):
        train_batch(world, model, optimizer, batch)


class Rows(Dataset[Any]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> Any:
        return X[number], Y[number]


def permuted(seed: int) -> tuple[Tensor, Tensor]:
    rows = torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))
    return X[rows], Y[rows]


BY_RANK: dict[str, Callable[[int], dict[str, Any]]] = {
    "rank 1 differs from rank 0 in the batch size: 32 against 16": lambda rank: {"batch_size": 16 * (1 + rank)},
    "rank 1 differs from rank 0 in the seed: 1 against 0": lambda rank: {"seed": rank},
    "rank 1 differs from rank 0 in shuffle: 1 against 0": lambda rank: {"shuffle": bool(rank)},
    "rank 1 differs from rank 0 in the number of samples: 101 against 102": lambda rank: {
        "data": (X[: 102 - rank], Y[: 102 - rank])
    },
    "in the number of samples: 99 against 100": lambda rank: {"data": Rows(100 - rank)},
    r"rank 1 differs from rank 0 in the data\n[\s\S]*random_split": lambda rank: {"data": permuted(rank)},
}


@pytest.mark.parametrize("message", BY_RANK)
def test_what_depends_on_the_rank_is_refused(message):
    check_refused(message, lambda world: loop(world, **BY_RANK[message](world.rank)))


@refused("rank 1 differs from rank 0 in the epoch: 1 against 0")
def test_refuses_other_epochs(world: World) -> None:
    model, optimizer = world.share(*made(Case(plain)))
    if world.rank:
        world.sharing.begin_epoch(0)  # a snapshot of another moment, say
    for batch in world.batches((X, Y), 32):
        train_batch(world, model, optimizer, batch)


def test_a_rank_that_returns_early_is_named_at_once() -> None:
    """The others would wait for it until their time-out."""
    cases: dict[str, Callable[[World], None]] = {
        "rank 1 returned after 4 steps, and rank 0 waits for it in step 5": lambda world: loop(
            world, epochs=1 if world.rank else 2
        ),
        "rank 0 returned after 0 steps, and rank [12] waits for it in step 1": lambda world: loop(
            world, epochs=min(world.rank, 1)
        ),
    }
    for ranks, (message, work) in enumerate(cases.items(), start=2):
        with pytest.raises(UserError, match=f"{message}\nHINT: go through the same number of batches"):
            on(ranks, work)


def test_ranks_may_return_one_after_the_other() -> None:
    def work(world: World) -> int:
        loop(world)
        for _ in range(world.rank):  # of whom nobody waits in a step any more
            torch.linalg.svd(torch.ones(150, 150))
        return world.rank

    assert on(3, work) == [0, 1, 2]


def test_datasets_and_odd_tensors_agree() -> None:
    """What is compared can be computed for whatever `batches` takes."""

    def work(world: World) -> None:
        model = nn.Linear(1, 1)
        model, optimizer = world.share(model.requires_grad_(True), torch.optim.SGD(model.parameters(), lr=0.1))
        for data in (
            torch.ones(20, 1, dtype=torch.bfloat16),
            torch.ones(20, 1, requires_grad=True),
            torch.ones(1, 20).t() > 0,
            torch.zeros(20, 1, 2, dtype=torch.complex64).transpose(1, 2),
        ):
            for batch in world.batches(data, 10, seed=2**64 - 5):
                for x in batch:
                    world.backward(model((x.detach() != 0).float().reshape(-1, 1)).mean())
                optimizer.step()

    torch.manual_seed(0)
    on(2, work)
