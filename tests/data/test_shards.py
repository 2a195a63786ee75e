import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.data.shards import ShardPlan, blocks, shards_of_rank
from unisono.errors import UserError

sizes = st.integers(1, 200)
plans = st.builds(
    ShardPlan,
    samples=st.integers(1, 300),
    batch=st.one_of(st.just("full"), st.integers(1, 320)),
    shards=st.integers(1, 20),
    seed=st.integers(0, 2**32),
)


@given(plans, st.integers(1, 24), st.integers(0, 3))
def test_every_sample_once_per_epoch_on_any_number_of_ranks(plan, size, epoch):
    order = plan.order(epoch)
    seen = [
        plan.shard_indices(order, step, shard)
        for rank in range(size)
        for step in range(plan.steps_per_epoch)
        for shard in shards_of_rank(plan.shards, size, rank)
    ]
    assert sorted(np.concatenate(seen)) == list(range(plan.samples))


@given(plans, st.data())
def test_shards_are_slices_of_their_batch_all_of_one_size_but_the_last(plan, data):
    order = plan.order(0)
    step = data.draw(st.integers(0, plan.steps_per_epoch - 1))
    pieces = [plan.shard_indices(order, step, shard) for shard in range(plan.shards)]
    start = step * plan.global_batch
    assert np.array_equal(np.concatenate(pieces), order[start : start + plan.batch_samples(step)])
    lengths = [len(piece) for piece in pieces]
    assert lengths == [plan.shard_samples(step, shard) for shard in range(plan.shards)]
    full = plan.batch_samples(step) // plan.shard_size
    assert lengths[:full] == [plan.shard_size] * full
    assert lengths[full + 1 :] == [0] * len(lengths[full + 1 :])
    assert all(np.shares_memory(piece, order) for piece in pieces if len(piece))


@given(plans, st.data())
def test_samples_that_stay_as_they_are_need_no_order(plan, data):
    step, shard = data.draw(st.integers(0, plan.steps_per_epoch - 1)), data.draw(st.integers(0, plan.shards - 1))
    found, expected = (plan.shard_indices(order, step, shard) for order in (None, np.arange(plan.samples)))
    assert (found.tolist(), found.dtype) == (expected.tolist(), np.int64)


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 9))
def test_drop_last_leaves_whole_batches_only(samples, batch, shards):
    if batch > samples:
        with pytest.raises(UserError, match="leaves no step"):
            ShardPlan(samples, batch, shards, 0, drop_last=True)
        return
    plan = ShardPlan(samples, batch, shards, 0, drop_last=True)
    assert plan.steps_per_epoch == samples // batch
    assert {plan.batch_samples(step) for step in range(plan.steps_per_epoch)} == {batch}


@given(st.integers(0, 100), st.integers(1, 40))
def test_shards_are_dealt_evenly_in_order_the_first_ranks_get_more(shards, size):
    dealt = [shards_of_rank(shards, size, rank) for rank in range(size)]
    assert [shard for part in dealt for shard in part] == list(range(shards))
    lengths = [len(part) for part in dealt]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] - lengths[-1] <= 1


@given(st.integers(0, 300), st.integers(1, 50), st.integers(1, 9))
def test_blocks_cover_everything_once(samples, block, size):
    pieces = blocks(samples, block)
    assert [index for piece in pieces for index in range(samples)[piece]] == list(range(samples))
    assert all(piece.stop - piece.start == block for piece in pieces[:-1])
    dealt = [pieces[number] for rank in range(size) for number in shards_of_rank(len(pieces), size, rank)]
    assert dealt == pieces


def test_the_example_of_the_design():
    plan = ShardPlan(samples=100, batch=32, shards=8, seed=1)
    assert (plan.shard_size, plan.steps_per_epoch) == (4, 4)
    assert [plan.batch_samples(step) for step in range(4)] == [32, 32, 32, 4]
    assert [plan.shard_samples(3, shard) for shard in range(8)] == [4, 0, 0, 0, 0, 0, 0, 0]
    assert [list(shards_of_rank(8, 5, rank)) for rank in range(5)] == [[0, 1], [2, 3], [4, 5], [6], [7]]


def test_full_is_one_step_of_all_samples():
    plan = ShardPlan(samples=10, batch="full", shards=4, seed=0)
    assert (plan.global_batch, plan.steps_per_epoch, plan.shard_size) == (10, 1, 3)
    assert [plan.shard_samples(0, shard) for shard in range(4)] == [3, 3, 3, 1]


def test_every_epoch_and_seed_has_its_own_order_and_keeps_it():
    plan = ShardPlan(samples=50, batch=7, shards=2, seed=3)
    orders = [plan.order(epoch) for epoch in range(4)] + [ShardPlan(50, 7, 2, seed=4).order(0)]
    assert len({order.tobytes() for order in orders}) == 5
    assert np.array_equal(plan.order(2), ShardPlan(50, 9, 5, seed=3).order(2))
    assert orders[0].dtype == np.int64


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((0, 1, 1, 0), "there are 0 samples"),
        ((5, 0, 1, 0), "the batch size is 0"),
        ((5, "ful", 1, 0), "the batch size is 'ful'"),
        ((5, 1, 0, 0), "the number of shards is 0"),
    ],
)
def test_impossible_plans_are_refused(values, message):
    with pytest.raises(UserError, match=message):
        ShardPlan(*values)


def test_places_outside_are_refused():
    plan = ShardPlan(10, 4, 2, 0)
    for call in (
        lambda: plan.batch_samples(3),
        lambda: plan.shard_samples(-1, 0),
        lambda: plan.shard_samples(0, 2),
        lambda: shards_of_rank(4, 2, 2),
    ):
        with pytest.raises(IndexError):
            call()
    with pytest.raises(UserError, match="block size is 0"):
        blocks(3, 0)
