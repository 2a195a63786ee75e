"""Checks before a run: is there enough work for every rank, enough memory and room, and a network that fits the data?

The one idea: studies and SLURM jobs ask here, too, before data are loaded, and get the same messages as the run itself.
The message for a network that does not fit names the kind of data (text, classes, numbers), not the place in the
network that fails.

    check_shards(Recipe.from_options(shards=2, ranks=4))              # a UserError
    check_fits(recipe, dataset, job.model)                            # a UserError if the network does not fit
    estimate_bytes(prepare(Recipe.from_options(data="mnist")), ranks=2)     # memory to ask a batch system for

`estimate_bytes` adds what is large and known exactly (the arena, or a copy of the parameters and their optimizer's
vectors for each rank; the data, once a machine), the usual size of a rank's program, and a reserve.

Limits: without the data the size of a batch is unknown; the caller gives it to `check_samples`. The estimate counts for
each layer as much memory for its backward as the data of a batch take, which large convolutions and attention exceed:
give such jobs their --mem yourself.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from unisono.data.checks import NO_ONE_HOT, one_hot
from unisono.data.dataset import Dataset
from unisono.errors import UserError
from unisono.models.base import Model
from unisono.models.nets import NETWORKS
from unisono.os_limits import MIB, check_limits
from unisono.recipe import Recipe
from unisono.strategies.arena.state import padded, plan_sections
from unisono.strategies.registry import of

if TYPE_CHECKING:
    from unisono.training.job import Job

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
    # Before the network is made, which would report one number to predict as too few classes.
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


PROGRAM_BYTES = {"numpy": 120 * MIB, "torch": 400 * MIB}
"""A rank's interpreter with the engine, and MPI or gloo beside it."""
RESERVE = 1.5
STEP_BYTES = 100 * MIB
"""Estimates are multiples of this."""


def estimate_bytes(job: "Job", ranks: int) -> int:
    """The memory of a machine that holds `ranks` of the job's ranks."""
    model, data = job.model(), job.dataset
    if job.spec.on_arena:
        extent = replace(job.extent(undo=True, spare=bool(job.snapshots)), size=ranks)
        vectors = plan_sections(model, job.shared_optimizer, extent).nbytes
    else:
        # Parameters, gradients, what is sent, the optimizer's, a copy for snapshots.
        vectors = ranks * 8 * 4 * padded(model.layout.length)
    layers = max(1, len(model.layout.shapes))
    sample = 4 * max(data.features, data.outputs)
    activations = job.batch_samples * sample * layers
    program = (ranks + 1) * PROGRAM_BYTES[job.recipe.model.engine]  # one more: who supervises, or launches
    whole = program + vectors + 2 * data.nbytes + activations  # twice: data are read, then scaled
    return -(-int(RESERVE * whole) // STEP_BYTES) * STEP_BYTES
