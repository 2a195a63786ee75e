"""Every pair meets once, and no node's link is used by two pairs at a time."""

from itertools import combinations

import pytest

from unisono.doctor.machines.pair_schedule import pair_turns, tournament

LAYOUTS = [[0], [0, 0], [0, 1], [0, 1, 2], [0, 0, 1, 1], [0, 0, 0, 1], [5, 7, 5, 9], [0, 1, 1, 2, 2, 2], [*range(7)]]


@pytest.mark.parametrize("nodes", LAYOUTS, ids=str)
def test_every_pair_meets_once(nodes):
    met = [pair for turn in pair_turns(nodes) for pair in turn]
    assert sorted(met) == list(combinations(range(len(nodes)), 2))


@pytest.mark.parametrize("nodes", LAYOUTS, ids=str)
def test_a_node_is_in_one_pair_at_a_time(nodes):
    for turn in pair_turns(nodes):
        used = [node for pair in turn for node in {nodes[rank] for rank in pair}]
        assert len(used) == len(set(used)), turn


def test_nodes_that_are_many_meet_side_by_side():
    assert len(tournament([*range(8)])) == 7
    assert [len(turn) for turn in pair_turns([*range(8)])] == [4] * 7
