"""The numbers of rounds: each is somewhere, and back again."""

import pytest

from unisono.errors import UserError
from unisono.training.round_schedule import Interval, RoundSchedule


@pytest.mark.parametrize("schedule", [RoundSchedule(1, 1), RoundSchedule(3, 2), RoundSchedule(23, 20)], ids=str)
def test_every_round_has_one_place(schedule):
    places = [schedule.where(position) for position in range(1, schedule.final)]
    assert places == [(epoch, step) for epoch in range(1, schedule.epochs + 1) for step in range(schedule.steps + 1)]
    assert [schedule.position(*place) for place in places] == list(range(1, schedule.final))
    assert schedule.where(schedule.final) == (schedule.epochs + 1, 0)


def test_the_walk_of_a_run_that_stops_early():
    schedule, position, visited = RoundSchedule(steps=2, epochs=5), 1, []
    while position <= schedule.final:
        visited.append(schedule.where(position))
        position = schedule.after(position, stopped=visited[-1] == (2, 2))
    assert visited == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (6, 0)]


@pytest.mark.parametrize("steps", [1, 3])
def test_steps_done_are_counted_once(steps):
    schedule = RoundSchedule(steps, epochs=4)
    done = 0
    for position in range(1, schedule.final + 1):
        epoch, step = schedule.where(position)
        done += step < steps and epoch <= schedule.epochs
        assert schedule.steps_done(position) == done


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500steps", Interval(steps=500)),
        ("1step", Interval(steps=1)),
        ("2 epochs", Interval(epochs=2)),
        ("1epoch", Interval(epochs=1)),
        ("30s", Interval(seconds=30.0)),
        ("0.5seconds", Interval(seconds=0.5)),
        ("", Interval()),
    ],
)
def test_forms(text, expected):
    assert Interval.parse("--snapshot-every", text) == expected
    assert bool(expected) == bool(text)


@pytest.mark.parametrize(
    "text", ["10", "steps", "1.5steps", "0steps", "0.0s", "-1s", "0.5epochs", "3hours", "1s\n", " "]
)
def test_what_makes_no_sense_is_refused(text):
    with pytest.raises(
        UserError, match=r"(?s)--snapshot-every is .*HINT: give a number above 0 and its unit: 500steps"
    ):
        Interval.parse("--snapshot-every", text)


def test_when_it_is_due():
    assert [step for step in range(1, 8) if Interval(steps=3).due(step)] == [3, 6]
    assert [epoch for epoch in range(1, 6) if Interval(epochs=2).due_after(epoch)] == [2, 4]
    assert not any(Interval().due(step) or Interval().due_after(step) for step in range(1, 5))
    assert not any(Interval(epochs=1).due(step) or Interval(steps=1).due_after(step) for step in range(1, 5))
