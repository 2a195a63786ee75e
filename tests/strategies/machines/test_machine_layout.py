"""Which machine has what: every shard once, contiguous, and few sums to send; and what machines are called."""

import doctest

import pytest

from unisono.arena.reduction_tree import tree_nodes
from unisono.strategies.machines import machine_exchange, machine_layout
from unisono.strategies.machines.machine_layout import MachineLayout, MachineName, at_once

LAYOUTS = [(0,), (0, 0, 1, 1), (0, 0, 0, 1), (0, 1, 2, 3), (0, 1, 1, 2, 2, 2), (0, 1, 0, 1), (5, 3, 5, 3, 5)]


@pytest.mark.parametrize("module", [machine_exchange, machine_layout])
def test_examples_in_the_docstrings(module):
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("colours", LAYOUTS)
@pytest.mark.parametrize("shards", [6, 8, 16])
def test_every_shard_is_on_one_machine_and_stays_there(colours, shards):
    seat = MachineLayout.of(colours, 0, shards)
    assert sorted(rank for group in seat.groups for rank in group) == list(range(len(colours)))
    for live in range(1, shards + 1):
        parts = [seat.part(live, node) for node in range(seat.count)]
        assert [shard for part in parts for shard in part] == list(range(live))
        assert all(set(part) <= set(seat.part(shards, node)) for node, part in enumerate(parts))
        spans = [span for node in range(seat.count) for span in seat.spans(live, node)]
        assert [shard for low, high in spans for shard in range(low, high)] == list(range(live))
        assert all(tree_nodes(live, *span) == (span,) for span in spans)  # whole nodes of the tree


def test_a_rank_knows_its_machine_whatever_the_launcher_calls_it():
    seat = MachineLayout.of([7, 2, 7, 2], rank=3, shards=8)
    assert (seat.groups, seat.node, seat.ranks) == (((0, 2), (1, 3)), 1, (1, 3))
    assert seat.slots_of([0, 3]) == [1]


@pytest.mark.parametrize("sums", [[1, 1], [2, 1], [1, 1, 1, 1], [1, 2, 2], [3, 3, 1, 2, 2]])
def test_the_way_with_fewer_bytes_is_taken(sums):
    count = len(sums)
    flat, parted = max(sums) * (count - 1), (max(sums) + 1) * (count - 1) / count
    assert (flat if at_once(sums) else parted) == min(flat, parted)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (MachineName(0, "n0", "10.0.0.1", [0]), "node 0 (n0, 10.0.0.1, rank 0)"),
        (MachineName(12, "n12", "fd00::a:1:2:1", [12, 13]), "node 12 (n12, fd00::a:1:2:1, ranks 12, 13)"),
        (MachineName(1, "n1", "", [1]), "node 1 (n1, rank 1)"),
        (MachineName(2, "n2", "10.0.0.3"), "node 2 (n2, 10.0.0.3)"),
    ],
)
def test_a_name_holds_what_is_known(name, text):
    assert str(name) == text
