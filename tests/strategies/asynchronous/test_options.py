"""The options of an asynchronous run: what is refused before any process starts; where parameters are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.arena.reduction_tree import BLOCK
from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.strategies.asynchronous.options import AsyncOptions, cut
from unisono.strategies.asynchronous.spec import async_options_of
from unisono.strategies.asynchronous.staleness_rules import StalenessBound
from unisono.training.job import Job, prepare


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=8), st.integers(1, 6))
def test_parts_cover_the_vector_without_a_gap(sizes, masters):
    try:
        parts = cut(sizes, masters)
    except UserError:
        assert sum(sizes) <= BLOCK * masters
        return
    assert len(parts) == masters
    assert [low for low, _ in parts] == [0, *(high for _, high in parts[:-1])]
    assert parts[-1][1] == sum(sizes)
    assert all(low < high for low, high in parts)


def test_a_huge_layer_is_cut_and_parts_are_balanced():
    lengths = [high - low for low, high in cut([100352, 128, 8192, 64, 640, 10], 4)]
    assert max(lengths) < 1.1 * min(lengths)


def test_layers_stay_whole_where_that_is_balanced():
    assert cut([4096, 4100, 10], 2) == [(0, 4096), (4096, 8206)]


def test_small_arrays_are_not_cut():
    assert cut([10, 1], 2) == [(0, 10), (10, 11)]
    with pytest.raises(UserError, match=r"--masters 3: .* cut for 2 masters at most"):
        cut([10, 1], 3)


def test_one_master_has_everything():
    assert cut([3, 4], 1) == [(0, 7)]


ASYNC = Recipe.from_options(
    strategy="async", ranks=4, model="mlp:300", batch_size=8,
    data="synthetic:classes=4,rows=90,features=8,test_rows=60",
)  # fmt: skip


def terms_of(job: Job) -> AsyncOptions:
    return async_options_of(job, job.model())


def test_shards_have_no_effect():
    """So that a recipe for sync may be run as it is."""
    assert prepare(ASYNC.with_options(shards=16)).recipe.ranks.shards == 0


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
    terms = terms_of(prepare(ASYNC))
    assert (terms.bound, terms.clip, terms.workers) == (StalenessBound(6), 5.0, 3)
    terms = terms_of(prepare(ASYNC.with_options(staleness_rule="plain", clip=2.0, max_staleness="9:drop")))
    assert (terms.bound, terms.clip) == (StalenessBound(9, drop=True), 2.0)


def test_momentum_is_the_workers_and_the_masters_have_none():
    job = prepare(ASYNC.with_options(optimizer="nesterov", momentum=0.8, weight_decay=0.1))
    terms = terms_of(job)
    assert (terms.momentum, terms.nesterov) == (0.8, True)
    assert (job.optimizer.name, job.optimizer.momentum, job.optimizer.weight_decay) == ("sgd", 0.0, 0.1)


def test_an_epoch_is_one_batch_and_pushes_are_its_shards():
    plan = prepare(ASYNC).plan
    assert (plan.steps_per_epoch, plan.live(0), plan.shard_size, plan.epoch_samples) == (1, 12, 8, 90)
    plan = prepare(ASYNC.with_options(drop_last=True)).plan
    assert (plan.steps_per_epoch, plan.live(0), plan.shard_size, plan.epoch_samples) == (1, 11, 8, 88)
