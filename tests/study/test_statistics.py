import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.study.statistics import amdahl, gustafson, line_through, paired, spread_of, student


def test_a_spread_is_the_whole_range():
    found = spread_of([4.0, 1.0, 2.0])
    assert (found.median, found.low, found.high, found.count) == (2.0, 1.0, 4.0, 3)
    assert found.share == 0.75


def test_ratios_are_those_of_rounds_that_both_have():
    found = paired({0: 2.0, 1: 9.0, 3: 8.0}, {0: 1.0, 1: 3.0, 2: 5.0, 4: 0.0})
    assert (found.low, found.high, found.count) == (2.0, 3.0, 2)
    assert paired({0: 1.0}, {1: 1.0}) is None


@given(st.floats(0.01, 0.9), st.floats(0.1, 1e6))
def test_points_that_follow_a_law_give_it_back(serial, rate):
    ranks = [1, 2, 3, 4, 8]
    law = amdahl(ranks, [rate / (serial + (1 - serial) / n) for n in ranks])
    assert law.serial == pytest.approx(serial, abs=1e-9)
    assert law.half_width < 1e-6
    assert law.rate == pytest.approx(rate)
    assert law.limit == pytest.approx(1 / serial)
    assert law.ranks_at(0.5) == pytest.approx(1 + 1 / serial)
    assert law.speed_up(law.ranks_at(0.5)) == pytest.approx(law.ranks_at(0.5) / 2)
    law = gustafson(ranks, [rate * (serial + (1 - serial) * n) for n in ranks])
    assert law.serial == pytest.approx(serial, abs=1e-9)
    assert law.speed_up(8) == pytest.approx(8 - 7 * serial)


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    rng, held = np.random.default_rng(0), 0
    ranks = [1, 1, 1, 2, 2, 2, 4, 4, 4]
    for _ in range(400):
        noise = 1 + 0.03 * rng.standard_normal(len(ranks))
        law = amdahl(ranks, [100 / (0.1 + 0.9 / n) * x for n, x in zip(ranks, noise, strict=True)])
        held += abs(law.serial - 0.1) < law.half_width
    assert 0.92 < held / 400 < 0.98


def test_two_single_runs_leave_everything_open():
    law = amdahl([1, 2], [100.0, 180.0])
    assert law.half_width == math.inf
    assert (law.sizes, law.error) == (2, pytest.approx(0.0))


def test_better_than_linear_has_no_limit():
    law = amdahl([1, 2], [100.0, 210.0])
    assert law.serial < 0
    assert law.limit == law.ranks_at(0.5) == math.inf


@pytest.mark.parametrize(("x", "y"), [([1, 1], [2.0, 3.0]), ([1, 2], [0.0, 3.0]), ([], [])])
def test_there_is_no_line_without_two_places_and_numbers_above_0(x, y):
    assert line_through(x, y) is None


def test_students_t():
    assert (student(1), student(4), student(30)) == (12.71, 2.776, 2.042)
    assert [student(many) for many in (31, 60, 120, 1000)] == pytest.approx([2.0395, 2.0003, 1.9799, 1.9623], abs=0.002)


def test_rates_of_nothing_have_no_law():
    assert amdahl([1, 2], [0.0, 1.0]) is None
    assert gustafson([1, 1], [1.0, 1.0]) is None
