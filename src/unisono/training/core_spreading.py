"""CoreAffinity: spreads ranks over cores again when several of them run on one core; it pins nothing.

The one idea: ranks that wait yield, and the kernel, which sees them all as busy, often leaves three of four on one of
two cores; the step then takes as long as those three. So a rank is put on the core that is its turn, and at once
allowed on all of them again: where other work is on the machine, the kernel still moves it out of its way.

    home = CoreAffinity(member)
    home()                                                    # after every round

Often after a change of membership, for then the kernel places somebody new; rarely otherwise.
"""

import os
import time
from contextlib import suppress
from typing import final

from unisono.arena.membership.member import Member

OFTEN_S, RARELY_S = 0.01, 0.25
"""Between two returns: soon after a change of membership, and otherwise."""
SOON_S = 0.1


@final
class CoreAffinity:
    """Of this process, the rank of `member`. Does nothing where every rank can have a core to itself."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._home, self._allowed = set[int](), set[int]()
        self._seen = 0
        self._soon = self._due = 0.0

    def __call__(self) -> None:
        now, number = time.monotonic(), self._member.view.number
        if number != self._seen:
            self._seen, self._soon, self._due = number, now + SOON_S, now
        if now < self._due:
            return
        self._due = now + (OFTEN_S if now < self._soon else RARELY_S)
        allowed = os.sched_getaffinity(0)
        if allowed != self._home:  # else the way back has failed
            self._allowed = allowed
        if len(self._allowed) < self._member.count:
            self._home = {core_of(self._member.index, self._allowed)}
            go_to(self._home, self._allowed)


def core_of(index: int, allowed: set[int]) -> int:
    """The core whose turn it is for the member of that index."""
    return sorted(allowed)[index % len(allowed)]


def go_to(home: set[int], allowed: set[int]) -> None:
    """Moves this thread to that core, and lets it be moved to any that is allowed."""
    for cores in (home, allowed):
        with suppress(OSError):  # they may have been taken away
            os.sched_setaffinity(0, cores)
