"""Terms: what an asynchronous run is told, and what it refuses before any process starts."""

import pytest

from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.strategies.asynchronous.spec import async_options_of
from unisono.strategies.asynchronous.staleness_rules import StalenessBound
from unisono.training.job import prepare

ASYNC = Recipe.from_options(
    strategy="async", ranks=4, model="mlp:300", batch_size=8,
    data="synthetic:classes=4,rows=90,features=8,test_rows=60",
)  # fmt: skip


def test_shards_have_no_effect():
    assert (
        prepare(ASYNC.with_options(shards=16)).recipe.ranks.shards == 0
    )  # so that a recipe for sync may be run as it is


def test_masters_are_at_least_one():
    with pytest.raises(UserError, match="--masters is 0"):
        Recipe.from_options(masters=0)


def test_an_order_that_breaks_the_bound_is_refused(tmp_path):
    ranks = [1] * 10 + [2, 3]  # rank 2 pushes when ten updates have gone by
    rows = [f"1,{rank},{batch}" for batch, rank in enumerate(ranks)]
    (tmp_path / "order.csv").write_text("\n".join(["epoch,rank,batch", *rows]))
    recipe = ASYNC.with_options(epochs=1, order=str(tmp_path / "order.csv"))
    with pytest.raises(UserError, match=r"staleness 11 in epoch 1, and at most 6(.|\n)*--max-staleness 11"):
        prepare(recipe)
    assert prepare(recipe.with_options(max_staleness="6:drop")).updates == 12


def test_the_rules_own_bound_and_clip():
    job = prepare(ASYNC)
    terms = async_options_of(job, job.model())
    assert (terms.bound, terms.clip, terms.workers) == (StalenessBound(6), 5.0, 3)
    job = prepare(ASYNC.with_options(staleness_rule="plain", clip=2.0, max_staleness="9:drop"))
    terms = async_options_of(job, job.model())
    assert (terms.bound, terms.clip) == (StalenessBound(9, drop=True), 2.0)


def test_momentum_is_the_workers_and_the_masters_have_none():
    job = prepare(ASYNC.with_options(optimizer="nesterov", momentum=0.8, weight_decay=0.1))
    terms = async_options_of(job, job.model())
    assert (terms.momentum, terms.nesterov) == (0.8, True)
    assert (job.optimizer.name, job.optimizer.momentum, job.optimizer.weight_decay) == ("sgd", 0.0, 0.1)


def test_an_epoch_is_one_batch_and_pushes_are_its_shards():
    plan = prepare(ASYNC).plan
    assert (plan.steps_per_epoch, plan.live(0), plan.shard_size, plan.epoch_samples) == (1, 12, 8, 90)
    plan = prepare(ASYNC.with_options(drop_last=True)).plan
    assert (plan.steps_per_epoch, plan.live(0), plan.shard_size, plan.epoch_samples) == (1, 11, 8, 88)
