"""The estimate covers what runs take, and follows what decides it."""

import pytest

from unisono.recipe import Recipe
from unisono.runs.course import run_recipe
from unisono.training.job import prepare
from unisono.training.memory_estimate import MIB, estimate_bytes


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
