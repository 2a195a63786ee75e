"""--num-gpus is --ranks, and says so where ranks get no GPU."""

import pytest

from unisono.cli.train import Gpus, Options, given_options, note_of_run
from unisono.recipe import Recipe


@pytest.mark.parametrize(
    ("recipe", "gpus", "told"),
    [
        (Recipe.from_options(ranks=2), 0, "--strategy sync computes on processors"),
        (Recipe.from_options(ranks=2, strategy="local"), 4, "--strategy local computes on processors"),
        (Recipe.from_options(ranks=2, strategy="ddp"), 0, "is --ranks 2, on processors: torch sees no GPU here."),
        (Recipe.from_options(ranks=2, strategy="ddp", device="cpu"), 2, "is --ranks 2, on processors: --device cpu."),
        (Recipe.from_options(ranks=2, strategy="ddp"), 2, ""),
    ],
)
def test_who_asks_for_gpus_and_gets_none_hears_it(recipe, gpus, told, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr("unisono.strategies.external.spec._gpus", lambda: gpus)
    note = note_of_run(Gpus(2), recipe)
    assert told in note if told else note == ""
    assert note_of_run(2, recipe) == note_of_run(None, recipe) == ""


def test_for_a_recipe_it_is_a_plain_number():
    found = given_options(Options(ranks=Gpus(2)))["ranks"]
    assert (found, type(found)) == (2, int)
