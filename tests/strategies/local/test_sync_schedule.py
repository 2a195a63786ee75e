"""When replicas meet, and what each has seen by then."""

import doctest

from hypothesis import given
from hypothesis import strategies as st

from unisono.data.shards import ShardPlan
from unisono.recipe import Recipe
from unisono.strategies.local import sync_schedule as module
from unisono.strategies.local.sync_schedule import SyncSchedule, resolve_local


@given(
    samples=st.integers(1, 200), batch=st.integers(1, 40), shards=st.integers(1, 9), every=st.integers(1, 12),
    after=st.integers(0, 2),
)  # fmt: skip
def test_an_epoch_is_cut_into_spans_and_every_sample_is_seen_once(samples, batch, shards, every, after):
    plan = ShardPlan(samples, batch, shards, seed=0)
    sync_schedule = SyncSchedule(plan, every, after)
    for epoch in (1, 2, 3):
        steps = range(plan.steps_per_epoch)
        spans = sorted({sync_schedule.span(epoch, step) for step in steps}, key=lambda span: span.start)
        assert [step for span in spans for step in span] == list(steps)
        assert [span.stop - 1 for span in spans] == [step for step in steps if sync_schedule.due(epoch, step)]
        assert len(spans) == sync_schedule.meetings(epoch)
        assert all(len(span) == (every if epoch > after else 1) for span in spans[:-1])
        seen = [[sync_schedule.seen(span, replica) for replica in range(shards)] for span in spans]
        assert sum(map(sum, seen)) == samples
        for span, counts in zip(spans, seen, strict=True):
            assert [count > 0 for count in counts] == [replica < sync_schedule.live(span) for replica in range(shards)]


def test_what_the_module_says_of_itself():
    assert doctest.testmod(module).failed == 0


def test_the_number_of_steps_is_filled_in():
    assert resolve_local(Recipe.from_options(strategy="local")).strategy.sync_every == 16
    assert resolve_local(Recipe.from_options(strategy="local", sync_every=1)).strategy.sync_every == 1
