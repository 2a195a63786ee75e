"""Same bits: any number of ranks equals a plain single-process reference that computes shards one by one."""

import pytest

import unisono
from support.strategies.arena_cases import CASES, SAMPLES, reference, train
from unisono.data.shards import ShardPlan


@pytest.mark.parametrize("case", CASES)
def test_any_number_of_ranks_ends_with_the_bits_of_the_reference(case):
    plan = ShardPlan(SAMPLES, 48, 8, seed=3)  # 203 = 4 x 48 + 11: the last batch has one full shard of 6 and one of 5
    expected = reference(case, plan)
    for ranks in (1, 2, 3, 4, 5, 7, 8):
        assert set(unisono.run(lambda world: train(world, case, plan), ranks)) == {expected}, ranks


@pytest.mark.parametrize(("batch", "shards"), [(16, 16), (203, 4), (7, 3), (1, 1), (10, 8)])
def test_other_batches_and_shards(batch, shards):
    plan = ShardPlan(SAMPLES, batch, shards, seed=1)
    expected = reference("mlp momentum", plan)
    for ranks in (1, 2, 3, 4, 7, 11, 16):
        if ranks <= shards:
            assert set(unisono.run(lambda world: train(world, "mlp momentum", plan), ranks)) == {expected}, ranks


def test_other_shards_are_another_result():
    """Else the tests above could not fail."""
    assert reference("mlp momentum", ShardPlan(SAMPLES, 48, 8, 3)) != reference(
        "mlp momentum", ShardPlan(SAMPLES, 48, 4, 3)
    )
    assert reference("mlp momentum", ShardPlan(SAMPLES, 48, 8, 3)) != reference(
        "mlp momentum", ShardPlan(SAMPLES, 48, 8, 4)
    )
