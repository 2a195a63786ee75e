"""Does accuracy fall when ranks are added? The same small network on 1 and on 4 ranks, epoch by epoch, in one table.

    python benchmarks/layouts.py                          # Fashion-MNIST, wideresnet:1, about ten minutes on 2 cores
    python benchmarks/layouts.py --rows 1000 --epochs 2   # to see that it works

The rows:

- global batch fixed, `sync` on 1 and 4 ranks: the accuracies must be equal, not similar
- batch per rank fixed, `sync` on 1 and 4 ranks with --scale-lr linear and --warmup-epochs: within a point of each other
- batch per rank fixed, `ddp` on 4 ranks with the settings of one rank: what most scripts do, and what it costs

Fashion-MNIST is looked for in ../shared/data/fashion-mnist, seen from the repository. Only the first rows of it are
used, so that it ends; the last column is the loss of points against the row that the group starts with.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import unisono
from unisono.data.options import DataOptions
from unisono.data.sources import load
from unisono.launch.connect import connect_gloo
from unisono.recipe import Recipe
from unisono.strategies.peers import warm_up
from unisono.train.job import prepare
from unisono.train.team import Places, Team
from unisono.train.trainer import train
from unisono.world import World

FASHION = Path(__file__).parents[2] / "shared" / "data" / "fashion-mnist"


def accuracies(recipe: Recipe) -> list[float]:
    """Test accuracy of each epoch."""
    job, found = prepare(recipe), list[float]()

    def hear(rank: int, record: dict[str, Any]) -> None:
        if "metrics" in record:
            found.append(record["metrics"]["test_accuracy"])

    if recipe.strategy == "sync":
        Team(job, Places()).train(hear)
    else:
        warm_up(job.recipe)

        def work(world: World) -> None:
            with World(connect_gloo(world.comm), world.report) as over_gloo:
                train(over_gloo, job, None)

        unisono.run(work, recipe.ranks, on_report=hear)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4000, help="of the training data (default 4000)")
    parser.add_argument("--epochs", type=int, default=6, help="default 6")
    parser.add_argument("--model", default="wideresnet:1", help="default wideresnet:1")
    parser.add_argument("--lr", type=float, default=0.05, help="for a batch of 32 (default 0.05)")
    options = parser.parse_args()
    full = load("fashion-mnist", DataOptions(data_dir=str(FASHION)))
    with tempfile.TemporaryDirectory() as folder:
        np.savez(
            f"{folder}/fashion.npz",
            train_x=full.train_x[: options.rows].reshape(-1, *full.shape), train_y=full.train_y[: options.rows],
            test_x=full.test_x[:2000].reshape(-1, *full.shape), test_y=full.test_y[:2000],
        )  # fmt: skip
        base = Recipe(
            model=options.model, data=f"{folder}/fashion.npz", normalise="none", optimizer="nesterov", lr=options.lr,
            epochs=options.epochs, engine="torch",
        )  # fmt: skip
        fixed = replace(base, batch_size=128)
        grown = replace(base, batch_size_per_rank=32)
        followed = replace(grown, scale_lr="linear", warmup_epochs=2.0)
        rows = [
            ("sync, global batch 128, 1 rank", replace(fixed, ranks=1), ""),
            ("sync, global batch 128, 4 ranks", replace(fixed, ranks=4), "equal"),
            ("sync, 32 a rank, 1 rank", replace(followed, ranks=1), ""),
            ("sync, 32 a rank, 4 ranks, lr follows", replace(followed, ranks=4), "within"),
            ("ddp, 32 a rank, 4 ranks, lr as for 1", replace(grown, ranks=4, strategy="ddp"), "plain"),
        ]
        print(f"{options.model}, {options.rows} rows of Fashion-MNIST; test accuracy in % after each epoch")
        first: list[float] = []
        for name, recipe, kind in rows:
            found = accuracies(recipe)
            first = first if kind else found
            told = " ".join(f"{100 * value:6.2f}" for value in found)
            verdict = {
                "": "",
                "equal": "equal" if found == first else "NOT EQUAL",
                "within": f"{100 * (found[-1] - first[-1]):+.2f} points",
                "plain": f"{100 * (found[-1] - first[-1]):+.2f} points",
            }[kind]
            print(f"{name:<38} {told}   {verdict}", flush=True)


if __name__ == "__main__":
    main()
