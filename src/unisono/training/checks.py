"""Checks before a run: is there enough work for every rank, room on this machine, and a network that fits the data?

The one idea: studies and SLURM jobs ask here, too, before data are loaded, and get the same messages as the run itself.
What does not fit is explained by what the data are (text, classes, numbers), not by where the network fails.

    check_shards(Recipe.from_options(shards=2, ranks=4))              # a UserError
    check_fits(recipe, dataset, job.model)                            # a UserError if the network does not fit

Limits: without the data the size of a batch is unknown; the caller gives it to `check_samples`.
"""

import os
from collections.abc import Callable

from unisono.data.data_warnings import NO_ONE_HOT, one_hot
from unisono.data.dataset import Dataset
from unisono.errors import UserError
from unisono.models.base import Model
from unisono.models.nets import NETWORKS
from unisono.os_limits import MIB, check_limits
from unisono.recipe import Recipe
from unisono.strategies.registry import of

RANK_BYTES = {"torch": 15 * MIB}
USUAL_BYTES = 6 * MIB
"""What a rank that trains takes for itself at least, by its engine: measured with a few hundred parameters."""


def check_machine(recipe: Recipe, ranks: int = 0) -> None:
    """A `UserError` if this machine cannot run its ranks. ranks: those here, if they are not all."""
    try:
        os.getcwd()
    except OSError:
        raise UserError("the working directory is no more", hint="change to another one: cd ~") from None
    check_limits(
        ranks or recipe.ranks.count,
        threads=recipe.ranks.threads,
        rank_bytes=RANK_BYTES.get(recipe.model.engine, USUAL_BYTES),
    )


def check_samples(recipe: Recipe, size: int, samples: int) -> None:
    """A `UserError` if a batch of `size`, of all the `samples` that there are, has none for some rank."""
    if size >= recipe.ranks.count or of(recipe).asynchronous:
        return
    raise UserError(
        f"a batch of {size} sample{'s' * (size > 1)} for {recipe.ranks.count} ranks leaves ranks without work",
        hint=f"use --ranks {size}"
        + (" or less" if size > 1 else "")
        + (", or a larger --batch-size" if size < samples else ": there are no more samples"),
    )


def check_shards(recipe: Recipe) -> None:
    """A `UserError` if the recipe names fewer shards than ranks; 0 is as many as are needed."""
    shards, ranks = recipe.ranks.shards, recipe.ranks.count
    if not 0 < shards < ranks or of(recipe).asynchronous:
        return
    fewer = f"--ranks {shards}" + (" or less" if shards > 1 else "")
    hint = f"give --shards {ranks}, which gives other bits, or {fewer}"
    if recipe.faults.resume:
        allowed = ",".join(dict.fromkeys([*filter(None, recipe.faults.allow_change.split(",")), "shards"]))
        hint = f"give {fewer}: a run keeps its {shards} shards, and its bits"
        if not of(recipe).shards_are_replicas:
            hint += f"; for other bits from here on: --shards {ranks} --allow-change {allowed}"
    raise UserError(f"--shards {shards} is less than --ranks {ranks}: ranks would have no shard", hint=hint)


def check_fits(recipe: Recipe, dataset: Dataset, make: Callable[[], Model]) -> None:
    """make: the network of the recipe, whose engine is known by now."""
    # Before the network is made: one number to predict would be told as too few classes.
    network = NETWORKS.get(recipe.model.name.partition(":")[0]) if recipe.model.engine == "numpy" else None
    if (
        (network is not None and network.hidden and not dataset.classes)
        or (recipe.model.engine == "numpy" and dataset.tokens)
        or make().classifies != bool(dataset.classes)
    ):
        kind = "text" if dataset.tokens else "classes" if dataset.classes else "numbers to predict"
        raise UserError(
            f"--model {recipe.model.name} does not fit --data {recipe.data.name}, which has {kind}",
            hint=NO_ONE_HOT
            if one_hot(dataset)
            else "use --model linear for numbers, mlp or bn-mlp for classes, gpt for text, or for any of them "
            "FILE.py:FUNCTION, a network of your own",
        )
