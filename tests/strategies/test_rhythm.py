"""When replicas meet, and what each has seen by then."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisono.data.shards import Plan
from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.strategies import rhythm as module
from unisono.strategies.rhythm import Rhythm, resolve_local


@given(
    samples=st.integers(1, 200), batch=st.integers(1, 40), shards=st.integers(1, 9), every=st.integers(1, 12),
    after=st.integers(0, 2),
)  # fmt: skip
def test_an_epoch_is_cut_into_spans_and_every_sample_is_seen_once(samples, batch, shards, every, after):
    plan = Plan(samples, batch, shards, seed=0)
    rhythm = Rhythm(plan, every, after)
    for epoch in (1, 2, 3):
        steps = range(plan.steps_per_epoch)
        spans = sorted({rhythm.span(epoch, step) for step in steps}, key=lambda span: span.start)
        assert [step for span in spans for step in span] == list(steps)
        assert [span.stop - 1 for span in spans] == [step for step in steps if rhythm.due(epoch, step)]
        assert len(spans) == rhythm.meetings(epoch)
        assert all(len(span) == (every if epoch > after else 1) for span in spans[:-1])
        seen = [[rhythm.seen(span, replica) for replica in range(shards)] for span in spans]
        assert sum(map(sum, seen)) == samples
        for span, counts in zip(spans, seen, strict=True):
            assert [count > 0 for count in counts] == [replica < rhythm.live(span) for replica in range(shards)]


def test_what_the_module_says_of_itself():
    assert doctest.testmod(module).failed == 0


def test_the_number_of_steps_is_filled_in():
    assert resolve_local(Recipe(strategy="local")).sync_every == 16
    assert resolve_local(Recipe(strategy="local", sync_every=1)).sync_every == 1
    assert resolve_local(Recipe()) == Recipe()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sync_every": 0}, "--sync-every 0: not a number of steps\nHINT: give 1 or more"),
        ({"sync_every": -2}, "--sync-every -2"),
        ({"sync_every": "often"}, "--sync-every often"),
        ({"local_after": -1}, "--local-after -1 in a run of 20 epochs"),
        ({"local_after": 20}, "--local-after 20 in a run of 20 epochs\nHINT: give 0 or more and less than --epochs"),
        ({"strategy": "sync", "sync_every": 16}, "--sync-every 16 with --strategy sync.*\nHINT: use --strategy local"),
        ({"strategy": "sync", "sync_every": 0}, "--sync-every 0 with --strategy sync"),
        ({"strategy": "ddp", "local_after": 2}, "--local-after 2 with --strategy ddp"),
    ],
)
def test_mistakes_are_named(options, message):
    with pytest.raises(UserError, match=message):
        resolve_local(Recipe(**{"strategy": "local"} | options))
