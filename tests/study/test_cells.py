import re

import pytest

from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.recipe.reading import load
from unisono.study.cells import cells_of, over


def made(*texts: str) -> list[dict[str, str]]:
    return [dict(cell.labels) for cell in cells_of(Recipe(), [over(text) for text in texts])]


def test_values_that_mean_the_same_are_one_cell():
    assert [cell.name for cell in cells_of(Recipe(), [over("lr=0.1,0.10,0.2")])] == ["lr=0.1", "lr=0.2"]


def test_several_variations_make_up_their_product_and_options_may_vary_together():
    assert made("model=mlp:128,64|mlp:32") == [{"model": "mlp:128,64"}, {"model": "mlp:32"}]
    assert made("strategy+ranks=sync+1,async+4")[1] == {"strategy": "async", "ranks": "4"}
    found = [tuple(labels.items()) for labels in made("strategy=sync,ddp", "ranks=1,2")]
    assert found == [(("strategy", one), ("ranks", other)) for one in ("sync", "ddp") for other in "12"]


def test_values_are_of_the_options_types():
    (cell,) = cells_of(Recipe(), [over("lr=1"), over("batch-size=full"), over("drop_last=yes"), over("num_gpus=3")])
    assert {"lr": 1.0, "batch_size": "full", "drop_last": True, "ranks": 3}.items() <= cell.recipe.options().items()
    assert isinstance(cell.recipe.learning.lr, float)


def test_a_batch_of_all_ranks_goes_before_one_of_each():
    (cell,) = cells_of(load("r4", {}), [over("batch_size=1024")])
    assert (cell.recipe.learning.batch_size, cell.recipe.learning.batch_size_per_rank) == (1024, 0)


def test_cells_that_differ_have_files_that_differ():
    cells = cells_of(Recipe(), [over("data=a/b,a-b"), over("seed=0,1")])
    assert len({cell.slug for cell in cells}) == len({cell.digest for cell in cells}) == 4
    assert all(re.fullmatch(r"[\w.=-]+", cell.slug) for cell in cells)
    assert cells_of(Recipe(), [])[0].digest == cells_of(Recipe.from_options(out="elsewhere"), [])[0].digest


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["stratgy=sync"], "unknown option in --over: 'stratgy'.*did you mean 'strategy'"),
        (["out=a,b"], "unknown option in --over: 'out'"),
        (["strategy"], "--over strategy: there are no values"),
        (["ranks="], "there are no values"),
        (["ranks=two"], "ranks in --over is 'two'\nHINT: give a value of type int"),
        (["ranks=0"], "--ranks is 0"),
        (["ranks=1", "num_gpus=2"], "--over names ranks twice"),
        (["ranks+ranks=1+2"], "an option is there twice"),
        (["strategy+ranks=sync+1,async"], "'async' is 1 values for 2 options"),
    ],
)
def test_mistakes_are_refused_by_name(texts, message):
    with pytest.raises(UserError, match=f"(?s){re.escape(message) if '.*' not in message else message}"):
        made(*texts)
