"""A peer watch sees the end of processes that are nobody's children here, and of no others."""

import os
import time
from contextlib import closing
from typing import Any

import numpy as np
import pytest

import unisono
from unisono.comm.serial import SerialCommunicator
from unisono.comm.topology.local_peer_watch import PeerWatch
from unisono.supervise.children import defer_signals, fork_child, reap
from unisono.world import World


def test_one_that_has_ended_is_seen_and_the_others_are_not():
    """Rank 1 has nothing more to do: its process ends while the others still look, and neither of them leaves first."""

    def work(world: World) -> list[list[int]]:
        with closing(PeerWatch(world.comm)) as peer_watch:
            before = peer_watch.exited()
            world.comm.barrier()
            if world.rank == 1:
                return []
            deadline = time.monotonic() + 30.0
            while not peer_watch.exited() and time.monotonic() < deadline:
                os.sched_yield()
            found, peer = peer_watch.exited(), 2 - world.rank
            world.comm.sendrecv(np.zeros(1), peer, np.empty(1), peer)
            return [before, found]

    assert unisono.run(work, 3, timeout_s=30.0) == [[[], [1]], [], [[], [1]]]


class Told:
    """A communicator in which the other rank says that it is `other`: (name space, process number)."""

    rank, size = 0, 2

    def __init__(self, space: int, pid: int) -> None:
        self._other = np.array([0, space, pid])

    def all_gather(self, array: np.ndarray) -> np.ndarray:
        return np.stack([array, self._other if array.size == 3 else array])


@pytest.mark.parametrize(("here", "gone"), [(True, [1]), (False, [])])
def test_one_that_ended_before_anybody_looked(here, gone):
    """A number from another name space means somebody else here: it is not asked for."""
    with defer_signals():
        pid = fork_child(lambda: 0)
    reap(pid)
    told: Any = Told(os.stat("/proc/self/ns/pid").st_ino if here else 1, pid)
    with closing(PeerWatch(told)) as peer_watch:
        assert peer_watch.exited() == gone


def test_alone_nobody_is_gone():
    with closing(PeerWatch(SerialCommunicator())) as peer_watch:
        assert peer_watch.exited() == []
    peer_watch.close()
