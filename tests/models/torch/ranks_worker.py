"""Trains recipes on several numbers of ranks, in a process of its own, and prints what came out as JSON.

    python ranks_worker.py '[[{"model": "mine.py:net", "engine": "torch"}, [1, 2, 3]]]'

Forks: a rank that inherited threads of torch's would hang.
"""

import json
import sys
import tempfile
from pathlib import Path

import unisono
from unisono.launch.local import torch_threads_running
from unisono.recipe import Recipe
from unisono.train.job import prepare
from unisono.train.trainer import train


def outcome(recipe: Recipe) -> dict[str, object]:
    job = prepare(recipe)
    threads = torch_threads_running()
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "w.safetensors"
        ends = unisono.run(lambda world: train(world, job, weights), recipe.ranks, start="fork")
    return {
        "engine": job.recipe.engine,
        "threads": threads,
        "weights": sorted({end["weights_sha256"] for end in ends}),
        "scores": [ends[0][name] for name in ("train_loss", "train_accuracy", "test_loss", "test_accuracy")],
    }


def main() -> None:
    runs = json.loads(sys.argv[1])
    print(json.dumps([[outcome(Recipe(**options, ranks=ranks)) for ranks in counts] for options, counts in runs]))


if __name__ == "__main__":
    main()
