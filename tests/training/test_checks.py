"""Enough for every rank: what is refused, and whether the hint works; the estimate covers the memory that runs take."""

import pytest

from unisono.errors import UserError
from unisono.os_limits import MIB
from unisono.recipe import Recipe
from unisono.runs.lifecycle import run_recipe
from unisono.training.checks import check_samples, check_shards, estimate_bytes
from unisono.training.job import prepare


@pytest.mark.parametrize(
    "options", [{"shards": 0}, {"shards": 9}, {"shards": 12}, {"shards": 8, "strategy": "async"}], ids=str
)
def test_shards_for_all(options):
    check_shards(Recipe.from_options(ranks=9, **options))


RESUMED = {"ranks": 9, "shards": 8, "resume": "runs/a"}


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"ranks": 9, "shards": 8}, "give --shards 9, which gives other bits, or --ranks 8 or less"),
        ({"ranks": 2, "shards": 1}, "give --shards 2, which gives other bits, or --ranks 1"),
        (
            RESUMED,
            "give --ranks 8 or less: a run keeps its 8 shards, and its bits; for other bits from here on: --shards 9 "
            "--allow-change shards",
        ),
        ({**RESUMED, "allow_change": "epochs"}, "give .* --shards 9 --allow-change epochs,shards"),
        ({**RESUMED, "strategy": "local"}, "give --ranks 8 or less: a run keeps its 8 shards, and its bits"),
    ],
    ids=str,
)
def test_fewer_shards_than_ranks(options, hint):
    with pytest.raises(UserError, match=rf"^--shards \d is less than --ranks \d: .*\nHINT: {hint}$"):
        check_shards(Recipe.from_options(**options))


@pytest.mark.parametrize(
    ("size", "hint"),
    [
        (2, "use --ranks 2 or less, or a larger --batch-size"),
        (1, "use --ranks 1, or"),
        (5, ": there are no more samples"),
    ],
)
def test_fewer_samples_than_ranks(size, hint):
    samples = "1 sample" if size == 1 else f"{size} samples"
    with pytest.raises(UserError, match=f"a batch of {samples} for 6 ranks.*\nHINT: .*{hint}"):
        check_samples(Recipe.from_options(ranks=6), size, 5)
    check_samples(Recipe.from_options(ranks=size), size, 5)


def estimate(ranks: int = 2, **options: object) -> int:
    recipe = Recipe.from_options(ranks=ranks, **options)
    return estimate_bytes(prepare(recipe), ranks)


@pytest.mark.parametrize("allreduce", ["arena", "ring"])
def test_it_covers_what_a_run_took(tmp_path, allreduce):
    recipe = Recipe.from_options(epochs=1, model="mlp:2048,1024", allreduce=allreduce)
    took = run_recipe(recipe.with_options(out=str(tmp_path / "run")))["peak_memory_bytes"]
    assert took < estimate(model=recipe.model.name, allreduce=allreduce) < 20 * took


def test_it_grows_with_ranks_parameters_and_data():
    least = estimate()
    assert least % MIB == 0
    assert least < estimate(ranks=4) < estimate(ranks=8)
    assert estimate(model="mlp:4096,4096") > least + 3 * 4 * 4096**2  # parameters, and Adam's two vectors
    assert estimate(data="synthetic:rows=200000,features=200") > least + 4 * 200000 * 200
    copies = {ranks: estimate(ranks=ranks, model="mlp:4096,4096", allreduce="ring") for ranks in (1, 4)}
    assert copies[4] - copies[1] > 3 * 3 * 4 * 4096**2  # a copy each, where the arena holds one
