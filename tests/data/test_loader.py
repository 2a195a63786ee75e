"""Every shard in its place, on a border of its own."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unisono.data.loader import Loader
from unisono.data.shards import ShardPlan


@given(
    samples=st.integers(1, 60),
    batch=st.integers(1, 40),
    shards=st.integers(1, 8),
    features=st.sampled_from([1, 2, 3, 13, 16, 30]),
    targets=st.sampled_from([(), (1,), (3,)]),
)
def test_shards_are_the_plans_and_begin_on_borders(samples, batch, shards, features, targets):
    plan = ShardPlan(samples, batch, shards, seed=1)
    x = np.arange(samples * features, dtype=np.float32).reshape(samples, features)
    y = np.arange(samples * max(1, sum(targets)), dtype=np.float32 if targets else np.int64).reshape(samples, *targets)
    loader, order = Loader(plan, x, y), plan.order(0)
    for step in range(plan.steps_per_epoch):
        for first in range(plan.live(step)):
            found = {}
            for group in loader.groups(order, step, range(first, plan.live(step))):
                for at, (rows, labels) in enumerate(zip(group.x, group.y, strict=True)):
                    found[group.first + at] = rows, labels
                    for array in (rows, labels):
                        assert array.ctypes.data % 64 == 0
                        assert array.flags.c_contiguous
            assert list(found) == list(range(first, plan.live(step)))
            for shard, (rows, labels) in found.items():
                expected = plan.shard_indices(order, step, shard)
                assert rows.tolist() == x[expected].tolist()
                assert labels.tolist() == y[expected].tolist()


def test_the_same_memory_is_filled_again():
    plan = ShardPlan(26, 8, 3, seed=1)
    loader = Loader(plan, np.ones((26, 13), np.float32), np.zeros(26, np.int64))
    first, again = (loader.groups(plan.order(0), step, range(2))[0] for step in (0, 1))
    assert first.x is again.x
    assert first.y is again.y
