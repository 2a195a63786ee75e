"""FailurePolicy and Replacements: after the death of a rank, whether the run goes on, and when the rank is replaced.

`FailurePolicy` gives a run up, and says why. The one idea: one death does not end a run. The run ends when no rank is
left, when deaths do not stop, or when one round keeps crashing ranks (`CrashCounts`). A rank that was not killed ended
by what it computed: a library that crashed, or `os._exit` in user code. The rank that takes its work over computes the
same bits and ends the same way, so such exits are counted for as long as the run stays in one round.

    policy = FailurePolicy(most_deaths=100, most_crashes=5)
    policy.hear(exit); policy.reason(lost, view, "step {}".format)

`Replacements` keeps books of replacements, from when each is wanted until it is a member; it handles no processes. A
replacement is wanted, started (forked), ready, then a member; no rank waits for one that does not arrive. One that dies
before it joins is tried again, after longer and longer pauses, for as long as others work, and a few times when no
other rank is left.

    replacements = Replacements(respawn=True); replacements.want([2]); replacements.due(); replacements.mark_started(2)

Limits: deaths are counted within ten minutes, over all ranks; replacements that never joined do not count. The wait
status alone tells a crash from a kill; a crash by chance counts, too, until the round is done. `Replacements` sees
nothing itself: the process group knows which processes live.
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
        """Crashes in the round that is under way."""

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
    """The policy of one run; most_crashes: as for `CrashCounts`."""

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

        lost: the ranks lost since the view before: slot -> which rank it was, and how it ended. name: names a round.
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


AT_ONCE, FIRST_PAUSE_S, MOST_PAUSE_S = 2, 0.05, 60.0
"""How often a replacement that dies before it joins is tried again at once; the first pause then, and the longest."""
MOST_FAILURES = 6
"""How often it is tried when no other rank is left."""


@final
class Replacements:
    """The replacements of one run. respawn: whether ranks are replaced at all."""

    def __init__(self, *, respawn: bool) -> None:
        self._respawn = respawn
        self._due: dict[int, float] = {}  # slot -> when its replacement is to be forked
        self._coming: dict[int, bool] = {}  # slot -> whether it is ready
        self._failures: dict[int, int] = {}  # slot -> replacements that died before they joined

    @property
    def coming(self) -> list[int]:
        """Those that are started and have not joined."""
        return list(self._coming)

    @property
    def ready(self) -> list[int]:
        """The started ones that only wait to become members."""
        return [slot for slot, ready in self._coming.items() if ready]

    @property
    def wanted(self) -> bool:
        """Whether a replacement is still to be started."""
        return bool(self._due)

    def want(self, slots: Iterable[int]) -> None:
        """Replacements for these, at once."""
        if self._respawn:
            self._due |= dict.fromkeys(slots, 0.0)

    def due(self) -> list[int]:
        """Those that are to be started now."""
        return [slot for slot, due in self._due.items() if due <= time.monotonic()]

    def mark_started(self, slot: int) -> None:
        del self._due[slot]
        self._coming[slot] = False

    def get_ready(self, slot: int) -> None:
        """One said so; it counts if it is on its way."""
        if slot in self._coming:
            self._coming[slot] = True

    def join(self, slot: int) -> None:
        """One is a member now."""
        del self._coming[slot]
        self._failures.pop(slot, None)

    def fail(self, slot: int, *, alone: bool) -> bool:
        """One died before it joined: whether another is tried. alone: no rank works meanwhile."""
        self._coming.pop(slot, None)
        failures = self._failures[slot] = self._failures.get(slot, 0) + 1
        again = self._respawn and (failures < MOST_FAILURES or not alone)
        if again:
            pause_s = FIRST_PAUSE_S * 4.0 ** min(failures - AT_ONCE, 10) if failures > AT_ONCE else 0.0
            self._due[slot] = time.monotonic() + min(MOST_PAUSE_S, pause_s)
        return again
