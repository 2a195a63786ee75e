"""The order of pushes: which worker is next."""

import pytest

from unisono.strategies.asynchronous.sequencer import Sequencer, SequencerRules, next_in_turn, staleness_of


def test_going_round():
    found, last = [], 0
    for _ in range(7):
        last = next_in_turn([0, 1, 2], last)
        found.append(last)
    assert found == [1, 2, 0, 1, 2, 0, 1]


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_round_robin_has_one_staleness_after_the_first_round(workers):
    order = [(push % workers, push) for push in range(4 * workers)]
    assert staleness_of(order, SequencerRules(workers)) == [*range(workers), *[workers - 1] * (3 * workers)]


def test_collecting_counts_updates():
    order = [(push % 3, push) for push in range(9)]
    assert staleness_of(order, SequencerRules(3, group=3)) == [0, 0, 0, 1, 1, 0, 1, 1, 0]


def test_round_robin_waits_for_all_greetings_and_skips_who_is_done():
    sequencer = Sequencer(SequencerRules(3, "round-robin"))
    sequencer.greet(1, 1), sequencer.greet(2, 1)
    assert sequencer.choose({1, 2}, {1, 2, 3}) is None  # rank 3 has no parameters yet
    sequencer.greet(3, 1)
    assert sequencer.choose({1, 2}, {1, 2, 3}) == 1
    sequencer.push(1, 0, 2)
    assert sequencer.choose({1, 3}, {1, 2, 3}) is None
    assert sequencer.choose({1, 3}, {1, 3}) == 3


def test_free_is_fair():
    sequencer = Sequencer(SequencerRules(3))
    for rank in (1, 2, 3):
        sequencer.greet(rank, 1)
    found = []
    for _ in range(6):
        rank = sequencer.choose({1, 2, 3}, {1, 2, 3})
        sequencer.push(rank, 0, 0)
        found.append(rank)
    assert found == [1, 2, 3, 1, 2, 3]


def test_a_sequencer_that_is_shown_the_log_goes_on_like_the_first():
    rules = SequencerRules(2, group=2)
    first = Sequencer(rules)
    log = [first.greet(1, 1), first.greet(2, 1), first.push(1, 0, 2), first.push(1, 1, 3), first.push(2, 2, 2)]
    second = Sequencer(rules)
    for entry in log:
        assert second.again(entry) == entry
    assert second.push(2, 3, 3) == first.push(2, 3, 3)
    assert second.flush() == first.flush()


def test_what_is_collected_at_the_end_is_applied():
    sequencer = Sequencer(SequencerRules(3, group=3))
    for rank in (0, 1, 2):
        sequencer.greet(rank, 1)
    assert [sequencer.push(rank, 0, 0).updates for rank in (0, 1, 2, 0)] == [0, 0, 1, 0]
    assert sequencer.flush().updates == 1
    assert sequencer.flush() is None
