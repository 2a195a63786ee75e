import pytest

from unisono.errors import UserError
from unisono.measure.options import StudyOptions
from unisono.measure.scale_grid import cells_of_grid, cells_with_grid, default_grid
from unisono.recipe import Recipe
from unisono.recipe.reading import load
from unisono.study.cells import Cell


def recipes(recipe: Recipe, grid: str, *, weak: bool = False) -> list[Recipe]:
    return [cell.recipe for cell in cells_of_grid(recipe, grid, weak=weak)]


def test_strong_scaling_changes_the_ranks_and_nothing_else():
    found = recipes(Recipe(), "1x1,1x2,1x4")
    assert [recipe.ranks.count for recipe in found] == [1, 2, 4]
    assert len({recipe.with_options(ranks=1) for recipe in found}) == 1


def test_more_ranks_than_shards_raise_the_shards_of_all():
    assert [recipe.ranks.shards for recipe in recipes(Recipe(), "1x2,1x16")] == [16, 16]
    assert [recipe.ranks.shards for recipe in recipes(Recipe.from_options(shards=4), "1x2,1x16")] == [4, 4]
    assert [recipe.ranks.shards for recipe in recipes(Recipe.from_options(strategy="ddp"), "1x2,1x16")] == [0, 0]


def test_a_batch_per_rank_is_that_of_the_recipes_ranks_for_all():
    r4 = load("r4", {"scale_lr": "linear"})
    found = recipes(r4, "1x1,1x2")
    assert {
        (recipe.learning.batch_size, recipe.learning.batch_size_per_rank, recipe.learning.lr, recipe.learning.scale_lr)
        for recipe in found
    } == {(64, 0, 0.002, "none")}


def test_weak_scaling_keeps_the_work_of_a_rank():
    found = recipes(Recipe.from_options(batch_size=64, shards=4), "1x1,1x3", weak=True)
    assert [(recipe.learning.batch_size_per_rank, recipe.ranks.shards) for recipe in found] == [(64, 4), (64, 12)]
    found = recipes(Recipe.from_options(batch_size_per_rank=3), "1x1,1x2", weak=True)
    assert [(recipe.learning.batch_size_per_rank, recipe.ranks.shards) for recipe in found] == [(3, 3), (3, 6)]
    with pytest.raises(UserError, match="--weak with --batch-size full"):
        recipes(Recipe.from_options(batch_size="full"), "1x1", weak=True)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ("", "--grid is empty"),
        ("2", "'2' is no NODESxRANKS"),
        ("1x0", "'1x0' is no NODESxRANKS"),
        ("1x1,ax2", "'ax2' is no NODESxRANKS"),
        ("2x1", "--grid 2x1: 2 nodes are not reached from here, which is one\nHINT: give 1x2"),
    ],
)
def test_bad_grids_are_refused(grid, message):
    with pytest.raises(UserError, match=message):
        recipes(Recipe(), grid)


def test_the_grid_that_is_taken_if_none_is_given():
    assert default_grid(1) == "1x1,1x2"
    assert default_grid(2) == "1x1,1x2"
    assert default_grid(6) == "1x1,1x2,1x4"
    assert default_grid(8) == "1x1,1x2,1x4,1x8"


def test_options_that_cannot_be():
    with pytest.raises(UserError, match="--repeat is 0"):
        StudyOptions(repeat=0)
    with pytest.raises(UserError, match="--warmup is -1"):
        StudyOptions(warmup=-1)


@pytest.mark.parametrize(
    ("recipe", "shards"),
    [
        (Recipe.from_options(batch_size_per_rank=32), [1, 2]),
        (Recipe.from_options(batch_size_per_rank=32, shards=4), [4, 4]),
        (Recipe.from_options(batch_size=32), [0, 0]),
        (Recipe.from_options(batch_size_per_rank=32, strategy="ddp"), [0, 0]),
    ],
)
def test_a_rank_s_own_batch_is_one_shard_on_every_layout(recipe, shards):
    found = cells_with_grid([Cell({}, recipe)], "1x1,1x2", several=False)
    assert [(cell.recipe.ranks.count, cell.recipe.ranks.shards) for cell in found] == list(
        zip([1, 2], shards, strict=True)
    )
    assert {cell.recipe.learning.batch_size_per_rank for cell in found} == {recipe.learning.batch_size_per_rank}
