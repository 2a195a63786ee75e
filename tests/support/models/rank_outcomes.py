"""Trains recipes on several numbers of ranks, and says what came out.

    runs = [({"model": "mine.py:net", "engine": "torch"}, [1, 2, 3])]
    unisono.run(lambda world: run_all(runs), 1, start="fork")     # in a process of its own that need not import torch

Forks: a rank that inherited threads of torch's would hang.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import unisono
import unisono.models.torch.build  # torch, once for all
from unisono.launch.local import torch_threads_running
from unisono.recipe import Recipe
from unisono.training.job import prepare
from unisono.training.trainer import train


def outcome(recipe: Recipe) -> dict[str, object]:
    job = prepare(recipe)
    threads = torch_threads_running()
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "w.safetensors"
        ends = unisono.run(lambda world: train(world, job, weights), recipe.ranks.count, start="fork")
    return {
        "engine": job.recipe.model.engine,
        "threads": threads,
        "weights": sorted({end["weights_sha256"] for end in ends}),
        "scores": [ends[0][name] for name in ("train_loss", "train_accuracy", "test_loss", "test_accuracy")],
    }


def run_all(runs: Sequence[tuple[dict[str, Any], Sequence[int]]]) -> list[list[dict[str, object]]]:
    """Of each run (options, numbers of ranks): what came out on so many ranks."""
    return [[outcome(Recipe.from_options(**options, ranks=ranks)) for ranks in counts] for options, counts in runs]
