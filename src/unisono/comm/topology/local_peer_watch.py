"""PeerWatch: tells a rank which other ranks of its node have ended, where no supervisor does.

The one idea: a pidfd reports the end of any process, not only of children, and never confuses it with a new process of
the same number. So a rank that waits for another one learns at once that it waits in vain, not only at the time-out.

    with closing(PeerWatch(comm)) as peer_watch:     # made by every rank of comm
        peer_watch.exited()                          # [2]: rank 2 has ended

Limits: it does not see ranks on other nodes, or in other PID name spaces (a container for each rank).
"""

import os
import select
from typing import final

import numpy as np

from unisono.comm.base import Communicator
from unisono.comm.topology.shared_machine import node_colour


@final
class PeerWatch:
    """One rank's side."""

    def __init__(self, comm: Communicator) -> None:
        space = os.stat("/proc/self/ns/pid").st_ino
        rows = comm.all_gather(np.array([node_colour(comm), space, os.getpid()], np.int64)).tolist()
        self._poller = select.poll()
        self._ranks: dict[int, int] = {}  # pidfd -> rank
        self._gone: set[int] = set()
        for rank, (colour, where, pid) in enumerate(rows):
            if rank == comm.rank or [colour, where] != rows[comm.rank][:2]:
                continue
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:
                self._gone.add(rank)
            else:
                self._ranks[fd] = rank
                self._poller.register(fd, select.POLLIN)

    def exited(self) -> list[int]:
        """The ranks whose process has ended."""
        self._gone.update(self._ranks[fd] for fd, _ in self._poller.poll(0))
        return sorted(self._gone)

    def sees(self, rank: int) -> bool:
        """Whether this rank would notice the end of `rank`."""
        return rank in self._ranks.values() or rank in self._gone

    def close(self) -> None:
        """May be called twice."""
        for fd in self._ranks:
            self._poller.unregister(fd)
            os.close(fd)
        self._ranks = {}
