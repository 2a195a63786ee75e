"""The transitions of the protocol one by one; `test_interleavings.py` runs whoever uses them in chosen orders."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.arena.membership import protocol
from unisono.arena.membership.protocol import (
    CHECKING,
    COMMIT,
    NORMS,
    PASSED,
    READY,
    RESUMED,
    STILL,
    WAITING,
    View,
    pack,
)
from unisono.errors import UnisonoError

SIZES = [1, 2, 3, 4]


def fresh(size: int) -> tuple[list[int], View]:
    words = [0] * protocol.words_needed(size)
    return words, protocol.first_view(words, range(size), size)


FLAGS = st.tuples(
    st.integers(0, protocol.MOST_VIEWS - 1), st.integers(0, (1 << 40) - 1), st.sampled_from([0, READY, NORMS, COMMIT])
)


@given(FLAGS, FLAGS)
def test_flags_are_ordered_as_what_they_say(one, other):
    assert protocol.unpack(pack(*one)) == one
    assert (pack(*one) < pack(*other)) == (one < other)
    assert pack(*one) < 1 << 63


def test_a_position_that_does_not_fit_is_an_error_and_not_another_view():
    assert protocol.unpack(pack(7, 2**40 - 1, READY)) == (7, 2**40 - 1, READY)
    with pytest.raises(UnisonoError, match="round 1099511627776 cannot be counted"):
        pack(7, 2**40, READY)


@pytest.mark.parametrize("size", SIZES)
def test_every_word_has_one_meaning(size):
    """Everything that ranks and supervisor write goes to words of its own."""

    class Noting(dict):
        def __missing__(self, at: int) -> int:
            return 0

    used = []
    for slot in range(size):
        words = Noting()
        protocol.arrive(words, slot, 5)
        protocol.stand_still(words, slot)
        used.append({*words, *range(protocol.line(slot) + protocol.MARKS, protocol.line(slot) + protocol.PULSE + 1)})
    rows = []
    for number in (1, 2):
        words = Noting()
        protocol.publish(words, View(number, (0,), 0, COMMIT, ()), size)
        rows.append(set(words))
    common = rows[0] & rows[1]
    used += [rows[0] - common, rows[1] - common, common, set(range(protocol.REQUESTS, protocol.REQUESTS + 6))]
    assert sum(map(len, used)) == len(set().union(*used))
    assert max(set().union(*used)) < protocol.words_needed(size)


@pytest.mark.parametrize("size", SIZES)
def test_views_come_back_as_they_were_published(size):
    words = [0] * protocol.words_needed(size)
    assert protocol.current_view(words, size) is None
    view = protocol.first_view(words, range(size), size, position=7)
    assert view == View(1, tuple(range(size)), 7, COMMIT, ()) == protocol.current_view(words, size)
    for number in range(2, 6):
        view = View(number, (size - 1,), 7 + number, READY, tuple(range(size)))
        protocol.publish(words, view, size)
        assert protocol.current_view(words, size) == view


def test_a_row_is_complete_before_its_number_is_there():
    words, view = fresh(3)

    class Watching(list):
        def __setitem__(self, at: int, value: int) -> None:
            assert protocol.current_view(self, 3) == view
            super().__setitem__(at, value)

    words = Watching(words)
    protocol.publish(words, View(2, (0, 2), 4, READY, (0, 1, 2)), 3)
    assert protocol.current_view(words, 3) == View(2, (0, 2), 4, READY, (0, 1, 2))


@pytest.mark.parametrize("reads", range(1, 9))
def test_a_view_is_never_put_together_from_two(reads):
    """Who is not a member is not waited for: while it reads a row, the view after the next may be written there."""
    views = [View(2, (1,), 5, COMMIT, ()), View(3, (1, 2), 6, READY, (1,)), View(4, (0, 1, 2), 7, READY, (1, 2))]
    words, _ = fresh(3)
    protocol.publish(words, views[0], 3)

    class Slow(list):
        left = reads

        def __getitem__(self, at: int) -> int:
            if not self.left:
                protocol.publish(words, views[1], 3)
                protocol.publish(words, views[2], 3)
            self.left -= 1
            return words[at]

    assert protocol.current_view(Slow(), 3) in views


def test_who_waits_passes_when_all_have_come_even_in_a_freeze():
    words, view = fresh(3)
    flag = pack(view.number, 1, READY)
    for slot in (0, 2):
        protocol.arrive(words, slot, flag)
    assert protocol.missing(words, view.members, flag) == [1]
    assert protocol.advance(words, 0, view, flag, WAITING) == CHECKING
    assert protocol.advance(words, 0, view, flag, CHECKING) == WAITING
    protocol.raise_freeze(words)
    protocol.arrive(words, 1, pack(view.number, 1, COMMIT))
    assert protocol.missing(words, view.members, flag) == []
    assert protocol.advance(words, 0, view, flag, WAITING) == PASSED


def test_who_sees_a_freeze_stands_still_until_there_is_a_newer_view():
    words, view = fresh(2)
    flag = pack(view.number, 1, READY)
    protocol.arrive(words, 0, flag)
    protocol.raise_freeze(words)
    protocol.raise_freeze(words)
    assert not protocol.all_still(words, [0])
    assert protocol.not_still(words, [0]) == [0]
    assert protocol.advance(words, 0, view, flag, CHECKING) == STILL
    assert protocol.all_still(words, [0])
    assert not protocol.all_still(words, [0, 1])
    # It does not look at flags any more: whether everybody came is not for it to say.
    protocol.arrive(words, 1, flag)
    assert protocol.advance(words, 0, view, flag, STILL) == STILL
    protocol.publish(words, protocol.outcome(words, view, [0]), 2)
    assert protocol.advance(words, 0, view, flag, STILL) == RESUMED
    assert not protocol.freezing(words, 2)
    protocol.raise_freeze(words)
    assert protocol.freezing(words, 2)
    assert not protocol.all_still(words, [0]), "standing still for one freeze counted for the next"


A, B = (1, 4, READY), (1, 5, READY)


@pytest.mark.parametrize(
    ("flags", "position", "reached", "contributors"),
    [
        ([(0, 0, 0)] * 3, 3, COMMIT, ()),
        ([A, A, (0, 0, 0)], 3, COMMIT, ()),
        ([A, A, A], 4, READY, (0, 1, 2)),
        ([(1, 4, COMMIT), A, A], 4, READY, (0, 1, 2)),
        ([(1, 4, NORMS), (1, 4, COMMIT), (1, 4, NORMS)], 4, READY, (0, 1, 2)),
        ([(1, 4, COMMIT)] * 3, 4, COMMIT, ()),
        ([B, B, (1, 4, COMMIT)], 4, COMMIT, ()),
        ([B, B, B], 5, READY, (0, 1, 2)),
    ],
)
@pytest.mark.parametrize("members", [(0, 1), (2,), (0, 1, 2)])
def test_what_was_reached_is_what_all_old_members_reached(flags, position, reached, contributors, members):
    words = [0] * protocol.words_needed(3)
    view = protocol.first_view(words, range(3), 3, position=3)
    for slot, flag in enumerate(flags):
        protocol.arrive(words, slot, pack(*flag))
        assert protocol.flag_of(words, slot) == pack(*flag)
    assert protocol.outcome(words, view, reversed(members)) == View(2, members, position, reached, contributors)


@pytest.mark.parametrize("flag", [(1, 4, COMMIT), (2, 4, NORMS)])
def test_gradients_stay_those_of_their_makers_while_the_update_is_redone(flag):
    """Slot 1 is a dead maker's; slot 2 has not moved, or only has flags of the view before."""
    words = [0] * protocol.words_needed(3)
    view = View(2, (0, 2), 4, READY, (0, 1))
    protocol.arrive(words, 0, pack(2, 4, COMMIT))
    protocol.arrive(words, 2, pack(*flag))
    assert protocol.outcome(words, view, (0, 1)) == View(3, (0, 1), 4, READY, (0, 1))
    protocol.arrive(words, 2, pack(2, 4, COMMIT))
    assert protocol.outcome(words, view, (0, 1)) == View(3, (0, 1), 4, COMMIT, ())
    for slot in (0, 2):
        protocol.arrive(words, slot, pack(2, 5, READY))
    assert protocol.outcome(words, view, (0, 1)) == View(3, (0, 1), 5, READY, (0, 2))


def test_who_is_no_member_takes_no_flags_of_a_newer_view_for_those_of_the_one_it_read():
    """A replacement joins between the looks of an exchanger, whom nobody waits for: its gradients are not there yet."""

    class Joined(list):
        """The view changes, and all but the replacement come to the round, before word `at` is read for the first
        time."""

        at, done = protocol.line(0), False

        def __getitem__(self, at: int) -> int:
            if at == self.at and not self.done:
                self.done = True
                protocol.publish(self, View(2, (0, 1, 2), 6, COMMIT, ()), 3)
                for slot in (0, 1):
                    protocol.arrive(self, slot, pack(2, 7, READY))
            return super().__getitem__(at)

    words = Joined([0] * protocol.words_needed(3))
    protocol.publish(words, View(1, (0, 1), 6, COMMIT, ()), 3)
    assert protocol.contributors_of(words, 3, 7) is None
    assert words.done
    assert protocol.contributors_of(words, 3, 7) is None
    protocol.arrive(words, 2, pack(2, 7, READY))
    assert protocol.contributors_of(words, 3, 7) == (0, 1, 2)


def test_makers_are_those_whose_gradients_exist():
    words = [0] * protocol.words_needed(2)
    assert protocol.contributors_of(words, 2, 1) is None
    protocol.publish(words, View(1, (1,), 4, READY, (0, 1)), 2)
    assert protocol.contributors_of(words, 2, 4) == (0, 1)
    assert protocol.contributors_of(words, 2, 5) is None
    protocol.publish(words, View(2, (1,), 4, COMMIT, ()), 2)
    assert protocol.contributors_of(words, 2, 4) is None
