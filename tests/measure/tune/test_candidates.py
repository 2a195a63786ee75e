"""Which settings are tried, and what a larger batch does to the learning rate."""

import pytest

from unisono.errors import UserError
from unisono.measure.tune.candidates import candidates_of, doublings, scaled
from unisono.measure.tune.search import TuneOptions
from unisono.recipe import Recipe
from unisono.recipe.reading import load


def names(options, cores=4, **recipe):
    return [cell.name for cell in candidates_of(Recipe.from_options(**recipe), TuneOptions(**options), cores)]


@pytest.mark.parametrize(("most", "found"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_doublings_end_with_the_cores(most, found):
    assert doublings(most) == found


def test_ranks_times_threads_do_not_exceed_the_cores():
    expected = [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1)]
    assert names({}) == [f"ranks={ranks} threads={threads}" for ranks, threads in expected]
    assert names({"ranks": "8", "threads": "1,2"}, cores=2) == ["ranks=8 threads=1", "ranks=8 threads=2"]
    assert names({"ranks": "1,8"}, cores=2) == ["ranks=1 threads=1", "ranks=1 threads=2", "ranks=8 threads=1"]


def test_shards_that_ranks_can_work_on():
    found = names({"shards": "ranks", "threads": "1"}, cores=2)
    assert found == ["ranks=1 threads=1 shards=1", "ranks=2 threads=1 shards=2"]
    found = names({"shards": "1,ranks,8", "threads": "1", "ranks": "2"})
    assert found == ["ranks=2 threads=1 shards=2", "ranks=2 threads=1 shards=8"]
    with pytest.raises(UserError, match="nothing to try"):
        names({"shards": "1", "ranks": "2"})


def test_a_batch_brings_its_learning_rate_and_warm_up():
    cells = candidates_of(
        Recipe.from_options(batch_size=64, lr=0.1, epochs=20),
        TuneOptions(ranks="1", threads="1", batch_sizes="512,64"),
        2,
    )
    learning = [cell.recipe.learning for cell in cells]
    found = [(one.batch_size, one.lr, one.warmup_epochs) for one in learning]
    assert found == [(64, 0.1, 0.0), (512, pytest.approx(0.8), 2.0)]
    each = scaled(Recipe.from_options(batch_size_per_rank=32, ranks=2, lr=0.1, epochs=100, warmup_epochs=7.0), 256)
    assert (each.learning.batch_size, each.learning.batch_size_per_rank, each.learning.warmup_epochs) == (256, 0, 7.0)
    assert each.learning.lr == pytest.approx(0.4)
    with pytest.raises(UserError, match="full"):
        scaled(Recipe.from_options(batch_size="full"), 64)


@pytest.mark.parametrize("batches", ["", "64", "128"])
@pytest.mark.parametrize("rule", ["none", "linear"])
def test_ranks_change_nothing_but_the_time(batches, rule):
    """Also with a batch for each rank, of which the recipe's own ranks make the batch of all."""
    recipe = load("r4", {"scale_lr": rule})
    cells = candidates_of(recipe, TuneOptions(ranks="1,2,4", threads="1", batch_sizes=batches), 4)
    found = {cell.recipe.with_options(ranks=1) for cell in cells}
    assert len(cells) == 3
    (one,) = found
    factor = {"": 1, "64": 1, "128": 2}[batches] * (2 if rule == "linear" else 1)
    assert (one.learning.batch_size, one.learning.batch_size_per_rank) == (int(batches or 64), 0)
    assert (one.learning.lr, one.learning.scale_lr) == (pytest.approx(0.001 * factor), "none")
    assert bool(one.learning.warmup_epochs) == (batches == "128")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"objective": "speed"}, "unknown --objective"),
        ({"seconds": 0}, "--seconds is 0"),
        ({"ranks": "0"}, "--ranks 0"),
    ],
)
def test_mistakes_are_refused(options, told):
    with pytest.raises(UserError, match="HINT") as found:
        names(options)
    assert told in str(found.value)
