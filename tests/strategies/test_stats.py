"""What members count: a row each, which whoever takes a place goes on with, and which all can read."""

from support.strategies.arena_cases import arena_state
from unisono.models.nets import build
from unisono.strategies.arena.state import ArenaExtent, ArenaState
from unisono.strategies.base import TIMES, Batch
from unisono.strategies.stats import ArenaStats

MODEL = build("mlp:4", 12, 4)
SIZE = 3


def arena() -> ArenaState:
    """No fixture: pytest would hold its memory for longer than the test."""
    return arena_state(ArenaExtent(SIZE, 4, (4,), steps=5), MODEL)


def batch(epoch: int, step: int) -> Batch:
    number = 5 * (epoch - 1) + step + 1
    return Batch(number, epoch, step, 4, 40, 0.1, number, lambda shards: [])


def counts_of(shared: ArenaState, slot: int) -> ArenaStats:
    return ArenaStats(shared, slot, MODEL.layout.sizes)


def work(counts: ArenaStats, epoch: int, step: int, samples: int, first: bool = False) -> None:
    """A step in which each kind of time takes a second, told before its meeting."""
    counts.begin(batch(epoch, step), first=first)
    for name in TIMES:
        counts.spent[name] += 1.0
    counts.keep()
    counts.end(samples, first=first)


def test_whoever_takes_a_place_goes_on_counting():
    """What was kept, that is; of the step in which a rank died its successor counts the samples."""
    shared = arena()
    work(before := counts_of(shared, 1), 1, 0, 10)
    work(before, 1, 1, 10)
    work(after := counts_of(shared, 1), 1, 2, 10)
    after.keep()
    found = after.times(1)[1]
    assert found["compute_s"] == 3.0
    assert found["samples"] == 20  # of its own step, and of the one that was kept with a later one


def test_an_epoch_starts_at_zero_and_others_rows_may_be_of_an_older_one():
    shared = arena()
    first, second = counts_of(shared, 0), counts_of(shared, 2)
    for epoch in (1, 2):
        work(first, epoch, 0, 7, first=True)
    work(second, 1, 0, 5)
    for each in (first, second):
        each.keep()
    assert [row["samples"] for row in first.times(2)] == [7.0, 0.0, 0.0]
    assert [row["wait_s"] for row in first.times(2)] == [1.0, 0.0, 0.0]
    assert set(first.times(2)[0]) == {"samples", *TIMES, "exchange_s", "last_steps"}


def test_the_clock_is_that_of_the_first_member():
    shared = arena()
    first, other = counts_of(shared, 0), counts_of(shared, 1)
    work(other, 1, 0, 5)
    assert other.clock().begun == 0.0
    work(first, 1, 3, 5, first=True)  # resumed in the middle
    begun = first.clock()
    assert (begun.from_step, begun.first_sync_s) == (3, 2.0)
    assert begun.begun > begun.ended == 0.0
    work(first, 1, 4, 5, first=True)
    assert first.clock() == begun  # the first step counts, and the first synchronisation
    other.end_epoch(first=False)
    assert first.clock() == begun
    first.end_epoch(first=True)
    ended = other.clock()
    assert ended.ended >= ended.begun
    first.end_epoch(first=True)  # told again by whoever is first then
    assert other.clock() == ended
    work(first, 2, 0, 5, first=True)
    assert first.clock().begun > ended.ended
    assert first.clock().from_step == 0


def test_sums_and_memory_are_of_all():
    shared = arena()
    shared.steps[...] = 1.5, 2.0
    for slot in range(SIZE):
        counts = counts_of(shared, slot)
        counts.spent["memory_bytes"] = 100.0 + slot
        counts.keep()
    assert counts.epoch_sums() == (7.5, 10.0)
    assert counts.memory_bytes() == 303
