"""Watchdog: a small process beside this one, which ends it when a stage takes too long, with a word of what it was.

    with Watchdog("rank 2 of 4") as dog:
        dog.allow(20.0, "MPI was starting"); start(); dog.allow(10.0, "waiting for rank 0"); ...

The one idea: MPI's start and a store that has frozen let no Python run, no thread and no signal handler of ours; only
another process can end them.

Limits: forked, so before anything has started threads.
"""

import os
import select
import signal
import sys
from types import TracebackType
from typing import Self, final

from unisono.safe_print import print
from unisono.supervise import children

_PATIENCE_S = 60.0


@final
class Watchdog:
    """who: the name of the process in the message."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._reading, self._writing = os.pipe()
        self._pid = self._pidfd = -1

    def allow(self, seconds: float, what: str) -> None:
        """Gives this process so many seconds from now on. what: what it does meanwhile, for the message."""
        os.write(self._writing, f"{seconds} {what}\n".encode())

    def __enter__(self) -> Self:
        parent = os.getpid()
        with children.defer_signals():
            self._pid = children.fork_child(lambda: self._watch(parent))
            self._pidfd = os.pidfd_open(self._pid)
        os.close(self._reading)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._writing)
        children.end({self._pid: self._pidfd})
        os.close(self._pidfd)

    def _watch(self, parent: int) -> int:
        os.close(self._writing)
        seconds, what = _PATIENCE_S, "starting"
        while select.select([self._reading], [], [], seconds)[0]:
            said = os.read(self._reading, 4096).decode(errors="replace")
            if not said:
                return 0
            first, _, what = said.splitlines()[-1].partition(" ")
            seconds = float(first)
        told = f"unisono: {self._who}: gave up after {seconds:g} s, {what}; whoever says nothing at all is missing"
        print(told, file=sys.stderr, flush=True)
        os.kill(parent, signal.SIGKILL)
        return 0
