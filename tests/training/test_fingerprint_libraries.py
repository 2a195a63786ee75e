"""Which libraries compute a recipe, and their versions among the facts of the machine."""

from importlib import metadata

import pytest

from unisono.recipe import Recipe
from unisono.resources import machine
from unisono.training.fingerprint import libraries_of


@pytest.mark.parametrize(
    ("recipe", "libraries"),
    [
        (Recipe(), []),
        (Recipe.from_options(engine="torch"), ["torch"]),
        (Recipe.from_options(model="cnn:8,16"), ["torch"]),
        (Recipe.from_options(sync_batchnorm=True), ["torch"]),
        (Recipe.from_options(strategy="ddp"), ["torch"]),
        (Recipe.from_options(strategy="accelerate"), ["torch", "accelerate"]),
        (Recipe.from_options(model="nothing"), []),  # its run says so
    ],
)
def test_of_one_recipe(recipe, libraries):
    if "torch" in libraries:
        pytest.importorskip("torch")
    assert libraries_of([recipe]) == libraries


def test_of_several_each_is_named_once():
    recipes = [Recipe.from_options(strategy=strategy) for strategy in ("sync", "accelerate", "ddp")]
    assert libraries_of(recipes) == ["torch", "accelerate"]


def test_their_versions_are_facts_of_the_machine_where_they_are_installed():
    facts = machine("psutil", "no-such-library")
    assert facts["psutil"] == metadata.version("psutil")
    assert facts.keys() - machine().keys() == {"psutil"}
