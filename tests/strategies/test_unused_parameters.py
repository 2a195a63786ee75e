"""Parameters that miss steps: they stay as they are, and what they have missed is known, also if a step is redone."""

import numpy as np
import pytest

from unisono.strategies.unused_parameters import Stretches, behind_of, left_alone

RANGES = [(0, 3, 0), (3, 5, 1), (5, 9, 2), (10, 12, 3)]
"""Element 9 is no parameter's."""


def test_what_is_left_alone_is_put_back():
    vector = np.arange(12, dtype=np.float32)
    with left_alone([vector], RANGES, np.array([False, True, False, True])):
        vector += 100
    assert vector.tolist() == [100, 101, 102, 3, 4, 105, 106, 107, 108, 109, 10, 11]


def test_steps_are_counted_for_each_parameter():
    missed = np.zeros((2, 4), np.int64)
    seen = []
    for number, unused in enumerate(([0, 0, 0, 0], [0, 1, 0, 1], [0, 1, 0, 0], [0, 0, 0, 0]), 1):
        behind = behind_of(missed, number, np.array(unused, np.bool_), note=True)
        seen.append(None if behind is None else behind.tolist())
    assert seen == [None, [0, -1, 0, -1], [0, -1, 0, 1], [0, 2, 0, 1]]
    assert missed[4 % 2].tolist() == [0, 2, 0, 1]


@pytest.mark.parametrize("number", [3, 4])
def test_a_step_may_be_done_again(number):
    """By whoever notes it: the first that began may have died."""
    missed = np.array([[5, 1, 0], [5, 1, 0]])
    unused = np.array([True, False, False])
    first, again, other = (behind_of(missed, number, unused, note=note) for note in (True, True, False))
    assert first.tolist() == again.tolist() == other.tolist() == [-1, 1, 0]
    assert missed[number % 2].tolist() == [6, 1, 0]
    assert missed[(number - 1) % 2].tolist() == [5, 1, 0]


@pytest.mark.parametrize(
    ("behind", "found"),
    [
        ([0, 0, 0, 0], [(0, 9, 0), (10, 12, 0)]),
        ([2, 2, 0, 0], [(0, 5, 2), (5, 9, 0), (10, 12, 0)]),
        ([0, -1, 0, 7], [(0, 3, 0), (5, 9, 0), (10, 12, 7)]),
        ([-1, -1, -1, -1], []),
    ],
)
def test_neighbours_that_are_alike_are_one_stretch(behind, found):
    stretches = Stretches(RANGES)
    for _ in range(2):
        assert stretches.of(np.array(behind)) == found
    assert stretches.of(np.array([1, 1, 1, 1])) == [(0, 9, 1), (10, 12, 1)]
