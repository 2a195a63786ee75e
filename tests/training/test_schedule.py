"""The numbers of rounds: each is somewhere, and back again."""

import pytest

from unisono.training.schedule import RoundSchedule


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
