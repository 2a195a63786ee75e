"""What local SGD saves and costs: bytes and accuracy for several numbers of steps between averagings, beside sync.

    python benchmarks/local.py                                  # MNIST and Fashion-MNIST: some ten minutes on 2 cores
    python benchmarks/local.py --data fashion-mnist --every 16
    python benchmarks/local.py --rows 8192 --epochs 1 --seeds 1                  # to see that it works

The R2 job (sigmoid mlp:128,64, momentum 0.9, global batch 512, 8 shards) on 2 ranks. The columns:

- accuracy: on the test part after the last epoch, the mean over the seeds; points: how far below sync
- messages: bytes that a rank sends in an epoch over --allreduce ring, counted by the communicator's wrapper
- arena: bytes that a rank writes and reads to sum gradients, or to average, in an epoch, counted where it sums

The ratios are sync's bytes over local's. Bytes are those of epochs of 112 steps, 7 x 16: replicas also meet at the end
of an epoch, so in one of 117 steps they meet 8 times, and the ratio is 14.6. Replicas learn a little more slowly at
first: with --epochs 5 local is further behind on Fashion-MNIST than with 10. The data are looked for in ../shared/data,
seen from the repository.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, final

import numpy as np

import unisono
from unisono.comm.wrappers import Counted
from unisono.data.dataset import Dataset
from unisono.errors import UserError
from unisono.messages.rank_reports import EpochRecord, Report
from unisono.recipe import Recipe
from unisono.runs.supervised_training import RunPlaces, SupervisedRun
from unisono.strategies.arena.shard_sums import ShardAssignment
from unisono.training.job import load_data, prepare
from unisono.training.trainer import train
from unisono.world import World

DATA = Path(__file__).parents[2] / "shared" / "data"
STEPS = 112
"""Of the epochs whose bytes are counted: a multiple of 1, 4, 16 and 56."""


@final
@dataclass(frozen=True)
class Row:
    """What is compared."""

    name: str
    recipe: Recipe


@final
@dataclass(frozen=True)
class Found:
    """Of one row."""

    accuracy: float
    sent_bytes: int
    walked_bytes: int


def rows_of(base: Recipe, steps: list[int]) -> list[Row]:
    local = base.with_options(strategy="local")
    rows = [
        Row("sync", base),
        *(Row(f"local, every {every}", local.with_options(sync_every=every)) for every in steps),
        Row("local, every 16, bf16", local.with_options(sync_every=16, wire="bf16")),
    ]
    if base.learning.epochs > 1:
        rows.append(Row("local, every 16 after epoch 1", local.with_options(sync_every=16, local_after=1)))
    return rows


def accuracy(recipe: Recipe, data: Dataset) -> float:
    """On the test part, after the last epoch; on the arena, as `unisono train` does it."""
    found = 0.0

    def hear(rank: int, record: Report) -> None:
        nonlocal found
        found = record.metrics["test_accuracy"] if isinstance(record, EpochRecord) else found

    SupervisedRun(prepare(recipe, data), RunPlaces()).train(hear)
    return found


def sent_bytes(recipe: Recipe, data: Dataset) -> int:
    """By a rank in an epoch, over messages."""
    job = prepare(recipe.with_options(allreduce="ring", epochs=1, local_after=0), data)

    def work(world: World) -> int:
        comm = Counted(world.comm)
        train(World(comm, world.report), job, None)
        return comm.sent_bytes

    return max(unisono.run(work, recipe.ranks.count))


def walked_bytes(recipe: Recipe, data: Dataset) -> int:
    """By a rank in an epoch, in the arena: what it leaves for others, and what it reads of all of them."""
    job, counted = prepare(recipe.with_options(epochs=1, local_after=0), data), [0]

    def counting(method: Callable[..., None], nbytes: Callable[..., int]) -> Callable[..., None]:
        def called(assignment: ShardAssignment, *given: Any) -> None:
            counted[0] += nbytes(assignment, *given)
            method(assignment, *given)

        return called

    def left(assignment: ShardAssignment, live: int, makers: Any, slot: int, *rest: Any) -> int:
        return sum(row.nbytes for row in assignment.left(live, makers, slot, 0, None))

    def read(assignment: ShardAssignment, live: int, makers: Any, low: int, high: int, out: np.ndarray) -> int:
        return len(assignment.lying(live, makers)) * out.nbytes

    def work(world: World) -> int:
        ShardAssignment.leave = counting(ShardAssignment.leave, left)  # type: ignore[method-assign]
        ShardAssignment.finish = counting(ShardAssignment.finish, read)  # type: ignore[method-assign]
        train(world, job, None)
        return counted[0]

    return max(unisono.run(work, recipe.ranks.count))


def measure(row: Row, data: Dataset, whole: Dataset, seeds: int) -> Found:
    scores = [accuracy(row.recipe.with_options(seed=seed), data) for seed in range(seeds)]
    return Found(fmean(scores), sent_bytes(row.recipe, whole), walked_bytes(row.recipe, whole))


def compare(base: Recipe, most_rows: int, steps: list[int], seeds: int) -> bool:
    """Prints the table; whether local every 16 keeps what it promises."""
    data = load_data(base)
    rows = min(most_rows, len(data.train_x)) // 512 * 512
    data = replace(data, train_x=data.train_x[:rows], train_y=data.train_y[:rows])
    count = min(STEPS * 512, rows)
    # Evaluation is not what is counted.
    whole = replace(
        data, train_x=data.train_x[:count], train_y=data.train_y[:count], test_x=data.test_x[:0], test_y=data.test_y[:0]
    )
    runs = f"{rows:,} rows, {base.learning.epochs} epochs, {seeds} seeds, {base.ranks.count} ranks"
    print(f"\n{base.data.name}: {runs}; bytes of a rank in {count // 512} steps")
    print(f"{'':<31}{'accuracy':>9}{'points':>8}{'messages':>13}{'ratio':>7}{'arena':>14}{'ratio':>7}")
    first: Found | None = None
    kept = True
    for row in rows_of(base, steps):
        found = measure(row, data, whole, seeds)
        first = first or found
        points = 100 * (found.accuracy - first.accuracy)
        ratios = first.sent_bytes / found.sent_bytes, first.walked_bytes / found.walked_bytes
        print(
            f"{row.name:<31}{100 * found.accuracy:>8.2f}%{points:>+8.2f}{found.sent_bytes:>13,}{ratios[0]:>7.1f}"
            f"{found.walked_bytes:>14,}{ratios[1]:>7.1f}",
            flush=True,
        )
        if row.recipe.strategy.sync_every == 16:
            kept &= points > -1 and (count < STEPS * 512 or min(ratios) >= 16)
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mnist,fashion-mnist", help="default: both")
    parser.add_argument("--epochs", type=int, default=10, help="default 10")
    parser.add_argument("--every", default="1,4,16,56", help="steps between averagings (default 1,4,16,56)")
    parser.add_argument("--rows", type=int, default=60000, help="of the training data (default: all)")
    parser.add_argument("--seeds", type=int, default=3, help="default 3")
    parser.add_argument("--lr", type=float, default=0.5, help="default 0.5")
    options = parser.parse_args()
    kept = True
    try:
        for name in options.data.split(","):
            base = Recipe.from_options(
                model="mlp:128,64", activation="sigmoid", data=name, data_dir=str(DATA / name), optimizer="momentum",
                lr=options.lr, batch_size=512, shards=8, ranks=2, epochs=options.epochs,
            )  # fmt: skip
            kept &= compare(base, options.rows, [int(every) for every in options.every.split(",")], options.seeds)
    except UserError as error:
        print(f"local.py: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    print(f"\nEvery 16 steps: bytes 16-fold fewer and accuracy within a point of sync: {'kept' if kept else 'MISSED'}")


if __name__ == "__main__":
    main()
