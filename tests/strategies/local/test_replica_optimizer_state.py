"""States of replicas: a round that is begun again starts from the same, and a finished one is found."""

import numpy as np
import pytest

from unisono.strategies.local.replica_optimizer_state import ReplicaState


def walk(states: ReplicaState, replica: int, position: int, by: float) -> None:
    for vector in states.begin(replica, position):
        vector[...] += by
    states.end(replica, position)


def sums(states: ReplicaState, position: int) -> list[float]:
    return [float(vector[0]) for vector in states.at(position)]


def test_rounds_build_on_each_other_replica_by_replica():
    states = ReplicaState.alone(replicas=3, count=1, length=4)
    for position in (4, 8, 9):
        walk(states, 0, position, 1.0)
        walk(states, 2, position, 10.0)
    assert sums(states, 9) == [3.0, 0.0, 30.0]


def test_a_replica_that_sits_a_round_out_keeps_what_it_has():
    states = ReplicaState.alone(replicas=2, count=2, length=4)
    for position in (1, 2, 3, 4):
        walk(states, 0, position, 1.0)
        if position == 2:
            walk(states, 1, position, 5.0)
        assert sums(states, position) == [position, position, *([5.0, 5.0] if position >= 2 else [0.0, 0.0])]


@pytest.mark.parametrize("before", [0, 1, 2, 3])
@pytest.mark.parametrize("ended", [False, True])
def test_a_round_that_is_begun_again_starts_from_the_same(before, ended):
    """Whether its first attempt died in the middle or had done all but meet."""
    states = ReplicaState.alone(replicas=1, count=1, length=4)
    for position in range(1, before + 1):
        walk(states, 0, position, 1.0)
    for _ in range(2):
        states.begin(0, before + 1)[0][:2] = np.nan
        if ended:
            states.end(0, before + 1)
        assert sums(states, before) == [before]  # a snapshot of the last finished round
        assert not np.isnan(states.at(before)[0]).any()
    walk(states, 0, before + 1, 1.0)
    assert sums(states, before + 1) == [before + 1]


def test_what_is_put_back_before_the_first_round_is_what_it_starts_from():
    states = ReplicaState.alone(replicas=2, count=1, length=4)
    for vector in states.at(120):
        vector[...] = 7.0
    walk(states, 1, 124, 1.0)
    assert sums(states, 124) == [7.0, 8.0]
