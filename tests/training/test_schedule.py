"""The numbers of rounds: each is somewhere, and back again."""

import pytest

from unisono.training.schedule import RoundSchedule


@pytest.mark.parametrize("walk", [RoundSchedule(1, 1), RoundSchedule(3, 2), RoundSchedule(23, 20)], ids=str)
def test_every_round_has_one_place(walk):
    places = [walk.where(position) for position in range(1, walk.final)]
    assert places == [(epoch, step) for epoch in range(1, walk.epochs + 1) for step in range(walk.steps + 1)]
    assert [walk.position(*place) for place in places] == list(range(1, walk.final))
    assert walk.where(walk.final) == (walk.epochs + 1, 0)


def test_the_walk_of_a_run_that_stops_early():
    walk, position, visited = RoundSchedule(steps=2, epochs=5), 1, []
    while position <= walk.final:
        visited.append(walk.where(position))
        position = walk.after(position, stopped=visited[-1] == (2, 2))
    assert visited == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (6, 0)]


@pytest.mark.parametrize("steps", [1, 3])
def test_steps_done_are_counted_once(steps):
    walk = RoundSchedule(steps, epochs=4)
    done = 0
    for position in range(1, walk.final + 1):
        epoch, step = walk.where(position)
        done += step < steps and epoch <= walk.epochs
        assert walk.steps_done(position) == done
