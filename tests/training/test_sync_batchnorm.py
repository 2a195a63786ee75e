"""--sync-batchnorm among the other options: what it asks for, and what it does not go with."""

import pytest

from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.training.job import prepare

SMALL = {"data": "synthetic:classes=3,rows=40,features=5", "model": "bn-mlp:7", "sync_batchnorm": True}


def test_it_chooses_the_engine_and_room_for_what_is_exchanged():
    job = prepare(Recipe.from_options(**SMALL))
    assert job.recipe.model.engine == "torch"
    assert job.extent().exchange == job.model().exchange_width == 1 + 2 * 7
    plain = prepare(Recipe.from_options(**SMALL | {"sync_batchnorm": False}))
    assert (plain.recipe.model.engine, plain.extent().exchange) == ("numpy", 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "numpy"}, "--sync-batchnorm with --engine numpy.*HINT: leave --engine out"),
        ({"precision": "fp16"}, "--sync-batchnorm with --precision fp16.*HINT: use --precision bf16"),
        ({"model": "mlp:7"}, "--sync-batchnorm, and .* has no batch norm.*HINT: leave --sync-batchnorm out"),
    ],
)
def test_what_it_does_not_go_with_is_refused_before_anything_starts(options, message):
    with pytest.raises(UserError, match=f"(?s){message}"):
        prepare(Recipe.from_options(**SMALL | options))
