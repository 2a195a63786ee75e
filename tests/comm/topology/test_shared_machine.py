"""Cores of ranks that were bound to some: counted together, each once."""

import os

import pytest

import unisono
from unisono import resources
from unisono.comm.topology.shared_machine import shared_cores


@pytest.mark.parametrize(("bound", "together"), [([{0}, {1}], 2), ([{0}, {0}], 1), ([{0, 1, 70}, {1, 9000}], 3)])
def test_each_core_counts_once(bound, together, monkeypatch):
    def work(world):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: bound[world.rank])
        return shared_cores(world.comm, [0, 1])

    assert unisono.run(work, 2) == [together, together]


def test_those_of_other_nodes_do_not_count(monkeypatch):
    def work(world):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {world.rank})
        return shared_cores(world.comm, [world.rank])

    assert unisono.run(work, 2) == [1, 1]


def test_usable_are_those_of_all_ranks_unless_there_is_a_quota(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3})
    monkeypatch.setattr(resources, "_groups", lambda controller: iter(()))
    assert resources.usable_cores() == 1
    resources.count_together(2)
    try:
        assert resources.usable_cores() == 2
    finally:
        resources.count_together(0)
