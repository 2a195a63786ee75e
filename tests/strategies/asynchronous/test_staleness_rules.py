"""Bounds: what is given, and that waiting keeps every worker within them without anybody waiting for ever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.errors import UserError
from unisono.strategies.asynchronous.sequencer import Sequencer, SequencerRules
from unisono.strategies.asynchronous.staleness_rules import StalenessBound


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("", StalenessBound(8)),
        ("none", None),
        ("5", StalenessBound(5)),
        ("5:wait", StalenessBound(5)),
        ("0:drop", StalenessBound(0, drop=True)),
    ],
)
def test_what_may_be_given(text, bound):
    assert StalenessBound.parse(text, workers=4, usual=8) == bound


@pytest.mark.parametrize("text", ["many", "-1", "5:skip", "2.5", ":drop"])
def test_what_may_not_be_given(text):
    with pytest.raises(UserError, match="--max-staleness"):
        StalenessBound.parse(text, workers=4, usual=8)


def test_a_bound_that_would_let_workers_wait_for_ever_is_refused():
    with pytest.raises(UserError, match=r"3 updates apart(.|\n)*give 3 or more, or 2:drop"):
        StalenessBound.parse("2", workers=4, usual=0)


@given(st.integers(1, 5), st.integers(0, 8), st.lists(st.integers(0, 4), max_size=60))
def test_waiting_keeps_the_bound_and_never_locks_up(workers, more, speeds):
    """Workers become ready in any order; a worker that is never ready by itself is so when nobody else may go."""
    bound = workers - 1 + more
    sequencer, active = Sequencer(SequencerRules(workers, bound=StalenessBound(bound))), set(range(workers))
    for rank in active:
        sequencer.greet(rank, 1)
    posted: set[int] = set()
    for speed in speeds:
        posted.add(speed % workers)
        rank = sequencer.choose(posted, active)
        if rank is None:
            posted = set(active)
            rank = sequencer.choose(posted, active)
        assert rank is not None
        assert sequencer.push(rank, 0, 0).staleness <= bound
        posted.discard(rank)


def test_without_waiting_the_bound_is_broken_in_the_same_situation():
    sequencer = Sequencer(SequencerRules(2))
    for rank in (0, 1):
        sequencer.greet(rank, 1)
    for _ in range(5):
        assert sequencer.choose({0}, {0, 1}) == 0
        sequencer.push(0, 0, 0)
    assert sequencer.push(1, 0, 0).staleness == 5


def test_what_is_too_stale_is_dropped_and_changes_nothing():
    sequencer = Sequencer(SequencerRules(2, bound=StalenessBound(1, drop=True)))
    for rank in (0, 1):
        sequencer.greet(rank, 1)
    for _ in range(3):
        sequencer.push(0, 0, 0)
    late = sequencer.push(1, 0, 0)
    assert (late.staleness, late.updates) == (3, 0)
    assert sequencer.push(0, 0, 0).staleness == 0  # nothing was updated since its own push
    assert sequencer.push(1, 0, 0).staleness == 1  # it was given fresh parameters
