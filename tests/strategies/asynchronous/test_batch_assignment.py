"""Deals: every batch once, remainders to the first workers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.errors import UserError
from unisono.strategies.asynchronous.batch_assignment import BatchAssignment


def test_sixty_batches_for_nine_workers():
    deal = BatchAssignment("static", range(60), workers=range(9))
    counts = [len(list(iter(lambda worker=worker: deal.next(worker), None))) for worker in range(9)]
    assert counts == [7, 7, 7, 7, 7, 7, 6, 6, 6]
    assert deal.left == 0


@given(st.sampled_from(["static", "dynamic"]), st.integers(0, 40), st.integers(1, 6), st.randoms())
def test_every_batch_is_dealt_once_in_whatever_order_workers_ask(how, count, workers, random):
    deal, found = BatchAssignment(how, range(count), range(workers)), []
    hungry = set(range(workers))
    while hungry:
        worker = random.choice(sorted(hungry))
        batch = deal.next(worker)
        if batch is None:
            hungry.remove(worker)
        else:
            found.append(batch)
    assert sorted(found) == list(range(count))
    assert deal.left == 0


def test_dynamic_relieves_a_slow_worker():
    deal = BatchAssignment("dynamic", range(6), [1, 2])
    assert [deal.next(worker) for worker in (1, 2, 1, 1, 1, 1, 2)] == [0, 1, 2, 3, 4, 5, None]


def test_after_a_death_the_living_keep_their_shares_and_divide_the_rest():
    deal = BatchAssignment("static", range(12), workers=[1, 2, 3], living=[1, 3], taken={0, 4, 8, 9})
    assert [[*iter(lambda worker=worker: deal.next(worker), None)] for worker in (1, 3)] == [
        [1, 2, 3, 6],
        [10, 11, 5, 7],
    ]
    stand_in = BatchAssignment("static", range(4), workers=[1, 2], living=[0], taken={2})
    assert [stand_in.next(0) for _ in range(4)] == [0, 1, 3, None]


@given(st.sampled_from(["static", "dynamic"]), st.randoms())
def test_deals_made_at_different_moments_agree_on_what_is_left(how, random):
    usual, living = [1, 2, 3, 4], random.sample([1, 2, 3, 4], random.randint(1, 4))
    taken = set(random.sample(range(30), 10))
    early = BatchAssignment(how, range(30), usual, living, taken)
    for _ in range(random.randint(0, 15)):
        batch = early.next(random.choice(living))
        taken |= {batch} - {None}
    late = BatchAssignment(how, range(30), usual, living, taken)
    while early.left or late.left:
        worker = random.choice(living)
        assert early.next(worker) == late.next(worker)


def test_a_plan_is_kept():
    deal = BatchAssignment.planned({1: [4, 3, 0], 2: [1]}, taken={3})
    assert deal.left == 3
    assert [deal.next(worker) for worker in (1, 2, 2, 1, 1)] == [4, 1, None, 0, None]


def test_who_does_not_work_is_given_nothing():
    assert BatchAssignment("dynamic", range(3), [1]).next(0) is None


def test_an_unknown_deal_is_refused():
    with pytest.raises(UserError, match="unknown --deal 'fair'"):
        BatchAssignment("fair", range(3), [1])
