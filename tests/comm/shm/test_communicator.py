"""What is special to shm: broken worlds, ranks that have left, memory; the rest is in tests/conformance."""

import gc
import os
from pathlib import Path

import numpy as np
import pytest

import unisono
from unisono.arena.reduction_tree import combine
from unisono.comm.shm.communicator import ShmCommunicator
from unisono.comm.shm.memory import ShmPlan
from unisono.errors import CommError, CommTimeout


def test_probe_is_fair():
    def work(world):
        if world.rank:
            for _ in range(3):
                world.comm.send(np.zeros(1), 0)
        world.comm.barrier()
        sources = []
        while world.rank == 0 and len(sources) < 6:
            found = world.comm.probe()
            world.comm.recv(np.empty(1), found.source)
            sources.append(found.source)
        return sources

    assert unisono.run(work, 3)[0] in ([1, 2] * 3, [2, 1] * 3)


def test_after_a_mismatch_the_communicator_is_broken():
    def work(world):
        with pytest.raises(unisono.Mismatch):
            world.comm.all_reduce(np.zeros(3 + world.rank))
        with pytest.raises(CommError, match="broken: ranks called different things"):
            world.comm.barrier()

    unisono.run(work, 2)


def test_a_rank_that_has_left_is_not_waited_for():
    def work(world):
        if world.rank != 1:
            world.comm.barrier()

    with pytest.raises(unisono.RankFailed, match="rank 1 has left and will not come to this barrier") as caught:
        unisono.run(work, 3, timeout_s=60)
    assert caught.value.kind == "CommTimeout"


def test_other_messages_do_not_prolong_a_wait():
    """Rank 1 sends another tag without end; rank 0 gives up on the one that never comes all the same."""

    def work(world):
        if world.rank == 0:
            with pytest.raises(CommTimeout):
                world.comm.recv(np.empty(1), 1, tag=1)
            world.comm.state = ""
            world.comm.send(np.zeros(1), 1)
            world.comm.recv(np.empty(1), 1, tag=3)  # takes in the rest, or a send of rank 1 would wait for room
            return
        while world.comm.probe(0) is None:
            world.comm.send(np.zeros(10), 0, tag=2)
        world.comm.send(np.zeros(1), 0, tag=3)

    unisono.run(work, 2, timeout_s=3.0)


def test_the_sum_follows_the_canonical_tree_in_every_path():
    def work(world):
        found = []
        for length in (7, 5000, 700_001):  # small, one piece, several pieces
            parts = [np.random.default_rng(rank).standard_normal(length).astype(np.float32) for rank in range(5)]
            expected = np.empty(length, np.float32)
            combine(parts, expected, np.add)
            mine = parts[world.rank].copy()
            world.comm.all_reduce(mine)
            found.append(mine.tobytes() == expected.tobytes())
        return found

    assert unisono.run(work, 5) == [[True] * 3] * 5


@pytest.mark.parametrize("size", [1, 2, 8, 64, 256])
def test_the_segment_stays_of_reasonable_size(size):
    plan = ShmPlan(size)
    assert plan.nbytes <= 96 * 2**20 + size * size * 5 * 1024
    assert plan.pipe_start(0, 0) % 8 == 0
    assert plan.slot_bytes % 4096 == 0


def holdings() -> tuple[int, int]:
    """How many segments this process has mapped, and how many descriptors it has open."""
    return Path("/proc/self/maps").read_text().count("memfd:unisono"), len(os.listdir("/proc/self/fd"))


def test_closing_gives_the_memory_back():
    def work(world):
        group = world.comm.split(0)
        before = holdings()
        group.close()
        del group
        gc.collect()
        return [was - now for was, now in zip(before, holdings(), strict=True)]

    # Two descriptors: ours, and the one that Python's mmap keeps for itself.
    assert unisono.run(work, 2) == [[1, 2], [1, 2]]


def test_a_world_over_another_communicator():
    def work(world):
        with ShmCommunicator.over(world.comm) as second:
            array = np.array([second.rank + 1.0])
            second.all_reduce(array)
            return float(array[0])

    assert unisono.run(work, 3) == [6.0, 6.0, 6.0]
