"""Candidates: which settings of ranks, threads, shards and batch are tried on a machine of so many cores.

The one idea: a candidate is a cell of a study, a recipe with labels. Nothing is tried that can only lose: more threads
than cores.

    candidates_of(Recipe(), TuneOptions(ranks="1,2"), cores=2)

A larger batch comes with the learning rate of the linear-scaling rule (Goyal and others 2017): as many times higher,
and, from twice the batch on, reached over the first epochs.
"""

from collections.abc import Iterable, Iterator

from unisono.errors import UserError
from unisono.measure.options import numbers, words
from unisono.measure.scale_grid import strong_problem
from unisono.measure.tune.search import TuneOptions
from unisono.recipe import Recipe
from unisono.study.cells import Cell

WARM_UP_EPOCHS = 5.0
"""Of Goyal's rule, for runs that are long enough; a tenth of the epochs of shorter ones."""


def doublings(most: int) -> list[int]:
    """1, 2, 4 ... and `most` itself."""
    found = [1]
    while found[-1] * 2 <= most:
        found.append(found[-1] * 2)
    return sorted({*found, most})


def candidates_of(recipe: Recipe, options: TuneOptions, cores: int) -> list[Cell]:
    """All settings, smaller ones first. A `UserError` if there are none."""
    ranks = doublings(cores) if options.ranks == "auto" else numbers(options.ranks, "--ranks")
    threads = doublings(cores) if options.threads == "auto" else numbers(options.threads, "--threads")
    pairs = [
        (count, each)
        for count in ranks
        for each in threads
        if count * each <= cores or each == 1 or options.threads != "auto"
    ]
    batches: list[int | None] = [None]
    if options.batch_sizes:
        batches = [*sorted(numbers(options.batch_sizes, "--batch-sizes"))]
    recipe = strong_problem(recipe, recipe.ranks.count, max(ranks))  # ranks change nothing but the time
    cells = [
        cell
        for batch in batches
        for count, each in pairs
        for shards in _shards(options.shards, count)
        for cell in [_cell(recipe, count, each, shards, batch)]
    ]
    unique = list({cell.digest: cell for cell in cells}.values())
    if not unique:
        raise UserError("there is nothing to try", hint="leave --shards out, or give as many shards as ranks, or more")
    return unique


def _shards(text: str, ranks: int) -> Iterator[int | None]:
    """Those that as many ranks can work on."""
    if not text:
        yield None
        return
    asked = words(text)
    given: Iterable[int] = numbers(",".join(word for word in asked if word != "ranks") or "1", "--shards")
    if "ranks" in asked:
        yield ranks
    if asked != ["ranks"]:
        yield from (count for count in given if count >= ranks)


def _cell(recipe: Recipe, ranks: int, threads: int, shards: int | None, batch: int | None) -> Cell:
    labels = {"ranks": f"{ranks}", "threads": f"{threads}"}
    made = recipe.with_options(ranks=ranks, threads=threads)
    if shards is not None:
        labels["shards"], made = f"{shards}", made.with_options(shards=shards)
    if batch is not None:
        labels["batch_size"], made = f"{batch}", scaled(made, batch)
    return Cell(labels, made)


def scaled(recipe: Recipe, batch: int) -> Recipe:
    """The recipe with another global batch and the learning rate that goes with it."""
    before = recipe.learning.batch_size_per_rank * recipe.ranks.count or recipe.learning.batch_size
    if isinstance(before, str):
        raise UserError("--batch-sizes with --batch-size full: there is no batch to scale from", hint="give a number")
    factor = batch / before
    warm_up = recipe.learning.warmup_epochs
    if factor >= 2:
        warm_up = max(warm_up, min(WARM_UP_EPOCHS, recipe.learning.epochs / 10))
    return recipe.with_options(
        batch_size=batch, batch_size_per_rank=0, lr=recipe.learning.lr * factor, warmup_epochs=warm_up
    )
