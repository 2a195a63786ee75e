"""Runs of strategies side by side, and how far apart their weights may be."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

import unisono

JOB = {"model": "mlp:24", "engine": "torch", "dropout": 0.2, "optimizer": "momentum", "lr": 0.05, "epochs": 1}
JOB |= {"batch_size": 28}
"""52 steps of digits, the last one with 14 samples: on two ranks the second has none of them, on three the third."""
NORMED = JOB | {"model": "bn-mlp:24"}
ROUNDING = 2e-6
"""Sums in another order: a few units in the last place of weights around 1, carried through 52 steps."""


def run_all(runs: dict[str, dict[str, Any]], folder: Path) -> dict[str, dict[str, Any]]:
    """What each of `runs` came to; they are made in a process of their own, in `folder`."""
    import_module("torch._dynamo")  # DDP would, in every rank
    from support.strategies.peers_outcomes import outcomes

    (found,) = unisono.run(lambda world: outcomes(runs, folder), 1, start="fork")
    return {name: found[name] | {"weights": load_file(folder / f"{name}.safetensors")} for name in runs}


def distance(one: dict[str, Any], other: dict[str, Any], *, of: str = "") -> float:
    """The largest difference of two runs' weights, of those whose names contain `of`; statistics are left out."""
    assert one["weights"].keys() == other["weights"].keys()
    names = [name for name in one["weights"] if of in name and "running" not in name and "num_" not in name]
    assert names
    return max(float(np.abs(one["weights"][name] - other["weights"][name]).max()) for name in names)


def ends_agree(found: dict[str, Any]) -> bool:
    """Whether all ranks came to the same weights and numbers."""
    told = ("weights_sha256", "train_loss", "train_accuracy", "test_loss", "test_accuracy", "epochs", "stopped_early")
    return len({tuple(end[name] for name in told) for end in found["ends"]}) == 1
