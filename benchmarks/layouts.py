"""Does accuracy fall when ranks are added? The same small network on 1 and on 4 ranks, epoch by epoch, in one table.

    python benchmarks/layouts.py                          # Fashion-MNIST, wideresnet:1: some five minutes on 2 cores
    python benchmarks/layouts.py --seeds 0 1 2            # and the mean over seeds
    python benchmarks/layouts.py --rows 500 --epochs 2    # to see that it works

- fixed: a global batch of 32, `sync` on 1 and on 4 ranks: accuracies and weights must be equal, not similar
- grown: 8 for each rank, so 32 on 4 ranks. `sync` with --scale-lr linear and --warmup-epochs 1: within a point of one
  rank. `ddp` with the settings of one rank, which is what most scripts do: a quarter of the steps, each as short; and
  `sync` with these settings, for it is them, not DDP

The last column compares a row's last epoch with that of the first row of its group. Everybody sees the same samples in
the same order, in shards of 8, with momentum 0.9 and a learning rate that falls along a cosine. A row that is done is
kept in the file `--results` and not trained again: after an interruption give the same command.

Limits: a small part of the data, so that it ends. The learning rate is small for a batch of 8, because that is where
the linear rule holds; docs/accuracy.md says what came out elsewhere. Fashion-MNIST is looked for in
../shared/data/fashion-mnist, seen from the repository. Kept rows know the recipe and not the version of the code.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias, final

import unisono
from unisono.data.dataset import DataOptions, Dataset
from unisono.data.sources import load
from unisono.errors import UnisonoError
from unisono.launch.connect import connect_gloo
from unisono.messages.rank_reports import EpochRecord, Report
from unisono.recipe import Recipe
from unisono.runs.supervised_training import RunPlaces, SupervisedRun
from unisono.training.job import prepare
from unisono.training.trainer import train
from unisono.world import World

FASHION = Path(__file__).parents[2] / "shared" / "data" / "fashion-mnist"
RANKS, BATCH = 4, 8

Cell: TypeAlias = Mapping[str, Any]
"""What a row came to: accuracy (a number for each epoch), weights_sha256, s."""


@final
@dataclass(frozen=True)
class Row:
    """A line of the table."""

    name: str
    recipe: Recipe
    against: int | None = None
    """The row that it is compared with."""
    exact: bool = False
    """Whether it must equal that one."""


def rows_of(base: Recipe) -> list[Row]:
    """The table. Batch norm sees 8 samples, a shard, in every row."""
    fixed = base.with_options(batch_size=RANKS * BATCH, shards=RANKS, lr=RANKS * base.learning.lr)
    grown = base.with_options(batch_size_per_rank=BATCH)
    followed = grown.with_options(scale_lr="linear", warmup_epochs=1.0)
    return [
        Row("sync, global batch 32, 1 rank", fixed.with_options(ranks=1)),
        Row("sync, global batch 32, 4 ranks", fixed.with_options(ranks=RANKS), 0, exact=True),
        Row("sync, 8 a rank, 1 rank", followed.with_options(ranks=1, shards=1)),
        Row("sync, 8 a rank, 4 ranks, lr follows", followed.with_options(ranks=RANKS, shards=RANKS), 2),
        Row("ddp, 8 a rank, 4 ranks, lr as for 1", grown.with_options(ranks=RANKS, strategy="ddp"), 2),
        Row("sync, 8 a rank, 4 ranks, lr as for 1", grown.with_options(ranks=RANKS, shards=RANKS), 2),
    ]


def trained(recipe: Recipe, data: Dataset) -> Cell:
    """A row, trained."""
    job, accuracy, begun = prepare(recipe, data), list[float](), time.monotonic()

    def hear(rank: int, report: Report) -> None:
        if isinstance(report, EpochRecord):
            accuracy.append(report.metrics["test_accuracy"])

    if recipe.strategy.name == "sync":
        results = list(SupervisedRun(job, RunPlaces()).train(hear).results.values())
    else:
        job.spec.warm_up()

        def work(world: World) -> Any:
            with World(connect_gloo(world.comm), world.report) as over_gloo:
                return train(over_gloo, job, None)

        results = unisono.run(work, recipe.ranks.count, on_report=hear)
    sha256 = next(result["weights_sha256"] for result in results if result)
    return {"accuracy": accuracy, "weights_sha256": sha256, "s": time.monotonic() - begun}


def points(cell: Cell, other: Cell) -> float:
    """By how much it ended above the other."""
    return float(100 * (cell["accuracy"][-1] - other["accuracy"][-1]))


def line_of(row: Row, cell: Cell, other: Cell | None) -> str:
    """A row with what is to be said of it."""
    verdict = ""
    if other is not None:
        verdict = f"{points(cell, other):+.2f} points"
        if row.exact:
            same = all(cell[name] == other[name] for name in ("accuracy", "weights_sha256"))
            verdict = "equal" if same else f"NOT EQUAL: {verdict}"
    numbers = " ".join(f"{100 * value:6.2f}" for value in cell["accuracy"])
    return f"{row.name:<36} {numbers}  {cell['weights_sha256'][:8]}  {verdict}".rstrip()


def mean_of(row: Row, cells: Sequence[Cell], others: Sequence[Cell]) -> str:
    """What a row gained or lost over all seeds."""
    found = [points(cell, other) for cell, other in zip(cells, others, strict=True)]
    return f"{row.name:<36} {fmean(found):+.2f} points, from {min(found):+.2f} to {max(found):+.2f}"


@final
class Kept:
    """Rows that are done, in a file."""

    def __init__(self, path: Path) -> None:
        self._path, self.found = path, 0
        self._cells: dict[str, Cell] = json.loads(path.read_text()) if path.exists() else {}

    def cell(self, recipe: Recipe, data: Dataset) -> Cell:
        """From the file, or trained and put there."""
        key = f"{recipe} {len(data.train_x)} {len(data.test_x)}"
        if key in self._cells:
            self.found += 1
            return self._cells[key]
        self._cells[key] = trained(recipe, data)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_suffix(".part")
        draft.write_text(json.dumps(self._cells, indent=1))
        draft.replace(self._path)
        return self._cells[key]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=3744, help="of the training data (default 3744)")
    parser.add_argument("--validation", type=int, default=2000, help="images to measure on (default 2000)")
    parser.add_argument("--epochs", type=int, default=5, help="default 5")
    parser.add_argument("--model", default="wideresnet:1", help="default wideresnet:1")
    parser.add_argument("--lr", type=float, default=0.00125, help="for a batch of 8 (default 0.00125)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="default 0")
    parser.add_argument("--results", type=Path, default=Path("results/layouts.json"), help="default %(default)s")
    options = parser.parse_args()
    full = load("fashion-mnist", DataOptions(data_dir=str(FASHION)))
    data = replace(
        full,
        train_x=full.train_x[: options.rows], train_y=full.train_y[: options.rows],
        test_x=full.test_x[: options.validation], test_y=full.test_y[: options.validation],
    )  # fmt: skip
    base = Recipe.from_options(
        model=options.model, data="fashion-mnist", optimizer="momentum", lr=options.lr, epochs=options.epochs,
        schedule="cosine", engine="torch",
    )  # fmt: skip
    kept, columns = Kept(options.results), [list[Cell]() for _ in rows_of(base)]
    print(
        f"{options.model}, {len(data.train_x)} images of Fashion-MNIST; % right of {len(data.test_x)} others by epoch"
    )
    for seed in options.seeds:
        print(f"seed {seed}")
        for row, column in zip(rows_of(base.with_options(seed=seed)), columns, strict=True):
            column.append(kept.cell(row.recipe, data))
            print(line_of(row, column[-1], None if row.against is None else columns[row.against][-1]), flush=True)
    if len(options.seeds) > 1:
        print(f"mean of {len(options.seeds)} seeds")
        for row, column in zip(rows_of(base), columns, strict=True):
            if row.against is not None and not row.exact:
                print(mean_of(row, column, columns[row.against]))
    spent_s = sum(cell["s"] for column in columns for cell in column)
    print(f"{spent_s:.0f} s in all; {kept.found} rows were in {options.results} already")


if __name__ == "__main__":
    try:
        main()
    except UnisonoError as error:
        print(f"layouts.py: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
