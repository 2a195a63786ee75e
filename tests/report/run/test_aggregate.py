"""What stands out, and what does not."""

import numpy as np
import pytest

from support.report.run_records import rank, record, totals_of
from unisono.data.shards import ShardPlan
from unisono.report.run.aggregate import Dominant, RunTotals, Slow, sample_shares


def test_times_are_means_over_all_ranks_and_sums_over_epochs():
    totals = RunTotals([1], [0.5, 0.5])
    for _ in range(3):
        totals.add(record([rank(0.1), rank(0.3, compute_s=3.0, host="b")], steps=5))
    assert totals.mean_s("compute_s") == pytest.approx(6.0)
    assert totals.mean_s("wait_s") == pytest.approx(0.6)
    assert (totals.steps, totals.nodes, totals.crowd, totals.ranks) == (15, 2, 1, 2)


def test_the_first_sync_is_not_part_of_the_steady_one():
    totals = totals_of([rank(0.5), rank(0.5)], steps=11)
    assert totals.steady_sync_s(0.6) == pytest.approx(0.04)  # 0.5 waiting + 0.5 updating - 0.6, over 10 steps
    assert totals_of([rank()], steps=1).steady_sync_s(0.6) == 0.6


def test_a_rank_that_all_wait_for_is_named():
    ranks = [rank(1.3, 2), rank(1.3, 3), rank(1.3, 3), rank(0.1, 92, host="b")]
    assert totals_of(ranks).waited_for() == Slow(3, "b", 0.92, pytest.approx(1.2))


@pytest.mark.parametrize(
    ("ranks", "steps"),
    [
        ([rank(1.3, 55), rank(0.1, 45)], 100),  # one of two is always the more frequent one
        ([rank(1.3, 2), rank(0.1, 8)], 10),  # chance
        ([rank(1.3, 60), rank(1.3, 340), rank(0.1, 300), rank(1.3, 300)], 1000),  # several are slow
        ([rank(0.11, 0), rank(0.1, 100)], 100),  # always, but nobody lost time
        ([rank(1.3, 0), rank(0.1, 0)], 100),  # not known
        ([rank(0.0, 100)], 100),  # alone
    ],
)
def test_a_rank_is_not_blamed_without_reason(ranks, steps):
    assert totals_of(ranks, steps).waited_for() is None


def test_a_rank_that_dominates_is_named_with_its_share_of_the_samples():
    totals = RunTotals([30, 10], [0.5, 0.25, 0.25])
    for wobble in (0.0, 0.01, -0.01):
        totals.add(record([rank()] * 3, [[0.2, 0.1], [0.1, 0.1], [0.7 + wobble, 0.8]]))
    # By their elements: (30 * 0.7 + 10 * 0.8) / 40.
    assert totals.dominant() == [Dominant(2, pytest.approx(0.725), 0.25)]


def test_single_loud_samples_are_no_unbalanced_data():
    """In every epoch one rank, another each time, has nearly all of the gradient."""
    totals = RunTotals([1], [1 / 8] * 8)
    for epoch in range(12):
        shares = np.full((8, 1), 0.02)
        shares[[0, 1, 0, 2, 3, 0, 4, 5, 0, 6, 7, 0][epoch]] = 0.86
        totals.add(record([rank()] * 8, shares.tolist()))
    assert totals.dominant() == []  # rank 0 had a mean of 37 %


def test_two_epochs_prove_nothing():
    totals = RunTotals([1], [0.5, 0.5])
    for _ in range(2):
        totals.add(record([rank()] * 2, [[2.0], [-1.0]]))
    assert totals.dominant() == []
    totals.add(record([rank()] * 2, [[2.0], [-1.0]]))
    assert [found.rank for found in totals.dominant()] == [0]


def test_what_ranks_were_dealt_in_the_last_step():
    # 10 samples in batches of 4, shards of 2: the last batch fills one shard.
    plan = ShardPlan(samples=10, batch=4, shards=2, seed=0)
    assert sample_shares(plan, 2) == [1.0, 0.0]
    assert sample_shares(ShardPlan(samples=12, batch=6, shards=3, seed=0), 2) == pytest.approx([2 / 3, 1 / 3])
