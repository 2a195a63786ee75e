"""scale: the same training on a grid of nodes x ranks; which cells there are.

The one idea: in strong scaling nothing changes but the ranks: global batch and shards are those of the recipe for all,
so that all cells end with the same bits. In weak scaling the batch grows with the ranks and a rank's work stays.

    cells_of_grid(load("r2", {}), "1x1,1x2", weak=False)

Limits: a grid with several nodes needs a batch system that reaches them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from unisono.errors import UserError
from unisono.measure.options import words
from unisono.optim.learning_rate import scaled
from unisono.recipe import DEFAULT_SHARDS, Recipe
from unisono.strategies.registry import of
from unisono.study.cells import Cell

MOST_RANKS = 4096
"""More processes on one machine are taken for a mistake."""


@dataclass(frozen=True, kw_only=True)
class ScaleOptions:
    """What is varied."""

    grid: str = ""
    """Nodes x ranks of a node, separated by commas, such as 1x1,1x2,1x4; powers of 2 up to the cores if empty. Several
    nodes with --slurm only."""

    weak: bool = False
    """Weak scaling: the batch grows with the ranks, each of which keeps its work. Otherwise the problem stays."""


def default_grid(cores: int) -> str:
    """1, 2, 4 ... ranks, one a core; two at least, for one is no scaling."""
    return ",".join(f"1x{2**power}" for power in range(max(2, cores.bit_length())))


def cells_of_grid(recipe: Recipe, grid: str, *, weak: bool, several: bool = False) -> list[Cell]:
    """A cell for each of NODESxRANKS; a `UserError` if the grid is none, or cannot be here. several: see `layouts`."""
    pairs = layouts(grid, several=several)
    fixed = weak_problem if weak else strong_problem
    most = max(nodes * ranks for nodes, ranks in pairs)
    return [
        Cell({"grid": f"{nodes}x{ranks}"}, fixed(recipe, nodes * ranks, most), nodes)
        for nodes, ranks in dict.fromkeys(pairs)
    ]


def layouts(grid: str, *, several: bool) -> list[tuple[int, int]]:
    """(nodes, ranks on each) of every cell, once each. several: whether several nodes can be reached."""
    pairs = [_pair(word, grid) for word in words(grid)]
    if not pairs:
        raise UserError("--grid is empty", hint="for example --grid 1x1,1x2")
    for nodes, ranks in pairs:
        if nodes > 1 and not several:
            raise UserError(
                f"--grid {nodes}x{ranks}: {nodes} nodes are not reached from here, which is one",
                hint=f"give 1x{nodes * ranks}; or, where there is SLURM, --slurm: then every run is a job",
            )
    most = max(ranks for _, ranks in pairs)
    if most > MOST_RANKS:
        raise UserError(f"--grid 1x{most}: more than {MOST_RANKS:,} ranks on one machine", hint="give fewer")
    return list(dict.fromkeys(pairs))


def cells_with_grid(cells: Sequence[Cell], grid: str, *, several: bool) -> list[Cell]:
    """Each cell on each layout, the layouts varying fastest. What belongs to a rank stays: a batch per rank, say.

    Such a batch is then one shard, if the recipe names no number: batch norm sees what it does in each process of ddp.
    """
    if any("ranks" in cell.labels for cell in cells):
        raise UserError("--grid with --over ranks=...: the grid says how many ranks there are", hint="leave one out")
    return [
        Cell({**cell.labels, "grid": f"{nodes}x{ranks}"}, _of_ranks(cell.recipe, nodes * ranks), nodes)
        for cell in cells
        for nodes, ranks in layouts(grid, several=several)
    ]


def _of_ranks(recipe: Recipe, ranks: int) -> Recipe:
    alone = of(recipe).recipe_shards and recipe.learning.batch_size_per_rank and not recipe.ranks.shards
    return recipe.with_options(ranks=ranks, shards=ranks if alone else recipe.ranks.shards)


def strong_problem(recipe: Recipe, ranks: int, most: int) -> Recipe:
    """The recipe on so many ranks, otherwise the same for up to `most` of them."""
    if each := recipe.learning.batch_size_per_rank:
        batch = each * recipe.ranks.count
        lr = scaled(recipe.learning.lr, recipe.learning.scale_lr, batch, each)
        recipe = recipe.with_options(batch_size=batch, batch_size_per_rank=0, lr=lr, scale_lr="none")
    if of(recipe).recipe_shards and recipe.ranks.shards == 0 and most > DEFAULT_SHARDS:
        recipe = recipe.with_options(shards=most)
    return recipe.with_options(ranks=ranks)


def weak_problem(recipe: Recipe, ranks: int, most: int) -> Recipe:
    """As much work for each of so many ranks as one has with the recipe's batch."""
    each = recipe.learning.batch_size_per_rank or recipe.learning.batch_size
    if isinstance(each, str):
        raise UserError(f"--weak with --batch-size {each}: it cannot grow", hint="give a number")
    shards = (
        min(recipe.ranks.shards or DEFAULT_SHARDS, each) * ranks if of(recipe).recipe_shards else recipe.ranks.shards
    )
    return recipe.with_options(ranks=ranks, batch_size_per_rank=each, shards=shards)


def _pair(word: str, grid: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)x(\d+)", word)
    if found is None or min(int(found[1]), int(found[2])) < 1:
        raise UserError(
            f"--grid {grid}: {word!r} is no NODESxRANKS", hint="for example --grid 1x1,1x2: one node, 1 and 2 ranks"
        )
    return int(found[1]), int(found[2])
