"""Replacements: the replacements of lost ranks, from when each is wanted until it is a member. Books, no processes.

The one idea: a replacement is on its way until it joins, and nobody misses one that does not arrive. It is wanted, set
out (forked), ready, then a member; one that dies before that is tried again, later and later, for as long as others
work, and a few times when nobody else is left.

    replacements = Replacements(respawn=True); replacements.want([2]); replacements.due(); replacements.mark_started(2)

Limits: it is told of everything and sees nothing itself: whether those on their way still live, the process group
knows.
"""

import time
from collections.abc import Iterable
from typing import final

AT_ONCE, FIRST_PAUSE_S, MOST_PAUSE_S = 2, 0.05, 60.0
"""How often a replacement that dies before it joins is tried again at once; the first pause then, and the longest."""
MOST_FAILURES = 6
"""How often it is tried when nobody else is left."""


@final
class Replacements:
    """Of one run. respawn: whether anybody is replaced."""

    def __init__(self, *, respawn: bool) -> None:
        self._respawn = respawn
        self._due: dict[int, float] = {}  # slot -> when its replacement is to be forked
        self._coming: dict[int, bool] = {}  # slot -> whether it is ready
        self._failures: dict[int, int] = {}  # slot -> replacements that died before they joined

    @property
    def coming(self) -> list[int]:
        """Those who have set out and not joined."""
        return list(self._coming)

    @property
    def ready(self) -> list[int]:
        """Of those the ones that only wait to be let in."""
        return [slot for slot, ready in self._coming.items() if ready]

    @property
    def wanted(self) -> bool:
        """Whether somebody is yet to set out."""
        return bool(self._due)

    def want(self, slots: Iterable[int]) -> None:
        """Replacements for these, at once."""
        if self._respawn:
            self._due |= dict.fromkeys(slots, 0.0)

    def due(self) -> list[int]:
        """Those whose time to set out has come."""
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
        """One did not live to join: whether another is tried. alone: nobody works meanwhile."""
        self._coming.pop(slot, None)
        failures = self._failures[slot] = self._failures.get(slot, 0) + 1
        again = self._respawn and (failures < MOST_FAILURES or not alone)
        if again:
            pause_s = FIRST_PAUSE_S * 4.0 ** min(failures - AT_ONCE, 10) if failures > AT_ONCE else 0.0
            self._due[slot] = time.monotonic() + min(MOST_PAUSE_S, pause_s)
        return again
