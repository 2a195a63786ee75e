"""Successive halving finds the best among noise, spends little on the rest, and stops when time is over."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unisono.measure.tune.halving import CLOSE, FIRST_S, halve


def forever(one, seconds):
    return True


@given(speeds=st.lists(st.floats(1.0, 100.0), min_size=1, max_size=12, unique=True))
def test_without_noise_it_is_the_best(speeds):
    outcome = halve(speeds, lambda one, seconds: one, forever)
    assert outcome.best == max(speeds)
    assert outcome.complete
    assert outcome.ranked() == sorted(speeds, reverse=True)


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), count=st.integers(2, 10))
def test_with_disturbances_it_is_within_five_percent(seed, count):
    """Other programs take up to a third of the time away, less of longer trials."""
    rng = np.random.default_rng(seed)
    speeds = {f"{n}": float(speed) for n, speed in enumerate(rng.uniform(1, 4, count))}

    def measure(one, seconds):
        return speeds[one] * (1 - 0.33 * rng.random() ** 2 / seconds)

    outcome = halve(list(speeds), measure, forever)
    assert speeds[outcome.best] >= 0.8 * max(speeds.values())
    again = [halve(list(speeds), measure, forever).best for _ in range(5)]
    assert np.median([speeds[best] for best in again]) >= 0.95 * max(speeds.values())


def test_most_of_the_time_is_for_those_that_are_close():
    spent = {}

    def measure(one, seconds):
        spent[one] = spent.get(one, 0.0) + seconds
        return {"a": 10.0, "b": 9.9, "c": 9.8}.get(one, 1.0)

    outcome = halve([*"hgfedcba"], measure, forever)
    assert outcome.best == "a"
    assert spent["a"] == spent["b"] == spent["c"] == FIRST_S * (2 ** len(CLOSE) - 1)
    assert sorted(spent[one] for one in "defgh") == [FIRST_S] * 4 + [3 * FIRST_S]
    assert outcome.rounds["a"] == len(CLOSE)


def test_one_whose_first_second_was_taken_by_others_still_wins_among_few():
    def measure(one, seconds):
        return 0.2 if one == "c" and seconds == FIRST_S else {"a": 1.0, "b": 1.1, "c": 2.0}[one]

    assert halve([*"abc"], measure, forever).best == "c"


def test_rounds_go_there_and_back():
    order = []
    halve(["a", "b"], lambda one, seconds: order.append(one) or 1.0, forever)
    assert "".join(order[:4]) == "abba"
    assert order.count("a") == order.count("b") == len(CLOSE)


def test_what_cannot_be_run_is_left_out():
    outcome = halve([1, 2, 3], lambda one, seconds: None if one == 3 else one, forever)
    assert outcome.best == 2
    assert outcome.rounds[3] == 1
    assert 3 not in outcome.scores
    assert halve([1], lambda one, seconds: None, forever).best is None


@pytest.mark.parametrize("trials", [1, 3, 7])
def test_when_time_is_over_the_best_so_far_counts(trials):
    left = [trials]

    def time_for(one, seconds):
        left[0] -= 1
        return left[0] >= 0

    outcome = halve([1, 2, 3, 4, 5], lambda one, seconds: float(one), time_for)
    assert not outcome.complete
    assert outcome.best == min(trials, 5)
    assert sum(outcome.rounds.values()) == trials
