"""FailurePolicy: when a run that loses ranks is given up, and the reason it reports.

The one idea: one death does not end a run. The run ends when no rank is left, when deaths do not stop, or when one
round keeps crashing ranks (`CrashCounts`). A rank that was not killed ended by what it computed: a library that
crashed, or `os._exit` in user code. The rank that takes its work over computes the same bits and ends the same way, so
such exits are counted for as long as the run stays in one round.

    policy = FailurePolicy(most_deaths=100, most_crashes=5)
    policy.hear(exit); policy.reason(lost, view, "step {}".format)

Limits: deaths are counted within ten minutes, over all ranks; replacements that never joined do not count. The wait
status alone tells a crash from a kill; a crash by chance counts, too, until the round is done.
"""

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import final

from unisono.arena.membership import protocol
from unisono.arena.membership.protocol import View
from unisono.supervise.processes import ChildExit

SIGNALS = {signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS}
"""Those that a process gets for what it did. Not SIGBUS, which comes when memory or a disk has run out."""


@final
class CrashCounts:
    """Crashes in the round under way; `most` of them exceed the limit, 0: crashes are not counted."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._heard: set[int] = set()
        self._position = 0
        self.count = 0
        """Of the round that is under way."""

    def hear(self, one: ChildExit) -> None:
        """A rank ended without a result."""
        killed = os.WIFSIGNALED(one.status) and os.WTERMSIG(one.status) not in SIGNALS
        (self._heard.discard if killed else self._heard.add)(one.rank)

    def note(self, position: int, lost: Iterable[int]) -> None:
        """These were lost when round `position` was to be done."""
        if position != self._position:
            self._position, self.count = position, 0
        self.count += len(self._heard.intersection(lost)) if self._most else 0
        self._heard.clear()

    @property
    def hopeless(self) -> bool:
        return 0 < self._most <= self.count


WINDOW_S = 600.0
"""Within which `most_deaths` are counted."""


@final
class FailurePolicy:
    """Of one run; most_crashes: as for `CrashCounts`."""

    def __init__(self, most_deaths: int, most_crashes: int) -> None:
        self._most_deaths, self._crashes = most_deaths, CrashCounts(most_crashes)
        self._deaths: deque[float] = deque()

    @property
    def crashes(self) -> int:
        """How many ranks ended by themselves, one after the other, in the round that is to be done."""
        return self._crashes.count

    def hear(self, one: ChildExit) -> None:
        """A rank ended without a result."""
        self._crashes.hear(one)

    def reason(self, lost: Mapping[int, str], view: View, name: Callable[[int], str]) -> str:
        """Why the run cannot go on with `view`; empty if it can.

        lost: those who are lost since the view before: slot -> who it was, and how it ended. name: of a round.
        """
        now, begun = time.monotonic(), view.position + (view.reached == protocol.COMMIT)
        self._deaths.extend(now for _ in lost)
        while self._deaths and self._deaths[0] < now - WINDOW_S:
            self._deaths.popleft()
        self._crashes.note(begun, lost)
        told = "; ".join(lost.values())
        if self._crashes.hopeless or (self._crashes.count > 1 and not view.members):
            return f"{name(begun)} ended {self._crashes.count} ranks one after another, the last: {told}"
        if not view.members:
            return f"no rank is left: {told}"
        if (many := len(self._deaths)) > self._most_deaths:
            return f"{many} rank{'s' * (many != 1)} died within {WINDOW_S / 60:g} minutes, the last: {told}"
        if view.number >= protocol.MOST_VIEWS - 1:
            return f"the membership changed {view.number} times, and numbers have run out"
        return ""
