"""`unisono.train`: a run from Python, as the command `unisono train` makes it.

    run = unisono.train(model="mlp:64", data="digits", epochs=3, ranks=4)
    run.summary["test_accuracy"]; run.weights; run.plot(); run.report()

The one idea: the command and this function read a recipe in one way (`recipe_source.py`) and run one lifecycle
(`lifecycle.py`). Here a run gives back its records, and an error is an exception.
"""

from os import PathLike, fspath
from typing import Any

import numpy as np

from unisono.environment.os_environ import detect
from unisono.launch.local import torch_threads_running
from unisono.recipe import Recipe
from unisono.report.run.load import Run
from unisono.report.run.load import load as load_run
from unisono.runs.lifecycle import run_lifecycle
from unisono.runs.recipe_source import read_recipe
from unisono.runs.separate_process import run_in_separate_process


def train(
    recipe: Recipe | str | PathLike[str] | None = None,
    /,
    *,
    ranks: int | None = None,
    quiet: bool = False,
    watch: bool = False,
    trust: bool = False,
    **options: Any,
) -> Run:
    """Trains a network on as many ranks as asked, from start to verdict; the run, as `unisono.load` reads it.

    recipe: a `Recipe`, a TOML file, or the name of a shipped recipe ("r2"). ranks, options: go before it; their names
    are those of a `Recipe`. With resume="runs/mine" alone that run goes on. quiet: only warnings are shown. watch: with
    a live page. trust: run the code that a file or a run names, wherever it lies.

    Mistakes raise `UserError`. Ctrl-C, or a signal of a batch system, lets the run write a snapshot and raises
    `Halted`, which says how to go on; Ctrl-C once more raises `KeyboardInterrupt` at once. In a process in which torch
    has started threads, such as a notebook, the run has a process of its own. Under mpirun, torchrun or srun this
    process is one rank, and only rank 0 has the records.
    """
    options |= {} if ranks is None else {"ranks": ranks}
    overrides = {name: _plain(value) for name, value in options.items()}
    found, whose = read_recipe(recipe, overrides, "the options", trusted=trust)
    if detect().size == 1 and torch_threads_running():
        return load_run(run_in_separate_process(found, whose, quiet=quiet, watch=watch))
    lifecycle = run_lifecycle(found, asked_ranks=overrides.get("ranks", 0), watch=watch, trust=whose, quiet=quiet)
    assert lifecycle.path is not None
    return load_run(lifecycle.path) if detect().rank == 0 else Run(lifecycle.path)


def _plain(value: Any) -> Any:
    """Paths and NumPy's numbers, as a script has them, by Python's own types."""
    if isinstance(value, PathLike):
        return fspath(value)
    return value.item() if isinstance(value, np.generic) else value
