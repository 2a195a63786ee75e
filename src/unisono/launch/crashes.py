"""Crashes: whether one round ends whoever computes it.

The one idea: a rank that nobody killed ended by what it computed: a library that crashed, `os._exit` in the user's own
code. Whoever takes its work over computes the same, bit by bit, and ends the same way. So ends of that kind are counted
for as long as the run stays in one round, and a round that has ended more than everybody is given up.

    crashes = Crashes(most=5); crashes.hear(ended); crashes.note(position, lost); crashes.count

Limits: how a rank ended is what the kernel says of it; a crash by chance counts, too, until the round is done.
"""

import os
import signal
from collections.abc import Iterable
from typing import final

from unisono.launch.crew import Ended

SIGNALS = {signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS}
"""Those that a process gets for what it did. Not SIGBUS, which comes when memory or a disk has run out."""


@final
class Crashes:
    """`most` in one round are one too many; 0: none are counted."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._heard: set[int] = set()
        self._position = 0
        self.count = 0
        """Of the round that is under way."""

    def hear(self, one: Ended) -> None:
        """Somebody ended without an answer."""
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
