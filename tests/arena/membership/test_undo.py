"""Old values come back, whenever the one who changes them dies."""

import numpy as np
import pytest

from support.arena.recorded_words import CELLS, TWINS, WORDS, Recording, Write
from unisono.arena.membership import protocol
from unisono.arena.membership.undo import Undo


def test_marked_stretches_of_the_round_are_taken_back_and_no_others():
    words = [0] * protocol.words_needed(3)
    vectors = [np.arange(9, dtype=np.float32), np.arange(9, dtype=np.float32) * 10]
    twins = [np.zeros(9, np.float32) for _ in vectors]
    undo = Undo(words, 3, vectors, twins)
    undo.keep(0, 6, 0, 3)  # a round that was committed
    vectors[0][0:3] += 0.5
    before = [vector.copy() for vector in vectors]
    for slot, low, high in ((1, 3, 5), (2, 5, 9)):
        undo.keep(slot, 7, low, high)
        for vector in vectors:
            vector[low:high] = -1
    assert undo.restore(7) == [1, 2]
    for vector, old in zip(vectors, before, strict=True):
        np.testing.assert_array_equal(vector, old)
    vectors[1][4] = 99
    assert undo.restore(7) == [], "a stretch was taken back twice"
    assert vectors[1][4] == 99


def test_two_groups_of_vectors_do_not_meddle():
    words = [0] * protocol.words_needed(2)
    one, two = np.ones(4), np.full(2, 2.0)
    first, second = Undo(words, 2, [one], [np.zeros(4)]), Undo(words, 2, [two], [np.zeros(2)], 1)
    first.keep(1, 3, 0, 4)
    second.keep(1, 3, 1, 2)
    one[:], two[:] = 5, 6
    assert second.restore(3) == [1]
    assert one.tolist() == [5, 5, 5, 5]
    assert two.tolist() == [6, 2]
    assert first.restore(3) == [1]
    assert one.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_death_between_any_two_writes_leaves_nothing_half_done(attempts):
    """In the second attempt the chunk is another one, and marks and twins of the first are still there."""
    log: list[Write] = []
    cells, words, twins = [7, 8, 9], [0] * protocol.words_needed(2), [0, 0, 0]
    if attempts == 2:
        undo = Undo(words, 2, [cells], [twins])
        undo.keep(1, 4, 0, 2)
        cells[0] = -1
        assert undo.restore(4) == [1]
    recorded = Recording(words, WORDS, log), Recording(cells, CELLS, log), Recording(twins, TWINS, log)
    Undo(recorded[0], 2, [recorded[1]], [recorded[2]]).keep(1, 4, 1, 3)
    recorded[1][1:3] = [-2, -3]
    assert len(log) == 2 + 3 + 2
    for count in range(len(log) + 1):
        left = {WORDS: list(words), CELLS: list(cells), TWINS: list(twins)}
        for kind, at, value in log[:count]:
            left[kind][at] = value
        Undo(left[WORDS], 2, [left[CELLS]], [left[TWINS]]).restore(4)
        assert left[CELLS] == [7, 8, 9], f"after {count} of {len(log)} writes"
