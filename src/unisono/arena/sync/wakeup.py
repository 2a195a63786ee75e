"""Wakeup: how ranks that run asynchronously wake each other, where polling would take a core from a working rank.

The one idea: a rank that has nothing to do says so in a word of its own and sleeps on a pipe. A rank that has work for
it stores the work, looks at that word, and writes to the pipe only if the word is set. So a busy rank is never
disturbed, and on a crowded machine a sleeping rank is woken sooner than a yield would let it run.

    wakeup = Wakeup(4); wakeup.wait(words, at=0, slot=1, ready=look); wakeup.wake(words, at=0, slot=1)

A wake-up can be missed (store and look of both sides may cross), so a sleep lasts milliseconds at most. Limits: only
for ranks that are forked after the pipes were made.
"""

import os
import select
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, final

from unisono.arena.membership.protocol import Words

NAP_MS = 5
"""The longest sleep before looking again, and so the longest delay of a ring that was missed."""


class PollLimits(NamedTuple):
    """Before a sleep, which costs more than a short wait."""

    times: int
    yields: bool
    """Whether others may run between two of them: where ranks share cores, those who are waited for among them."""


NONE = PollLimits(0, yields=False)


@final
class Wakeup:
    """One for each of `size` ranks."""

    def __init__(self, size: int) -> None:
        # Not an eventfd: the kernel takes a write to a pipe as a sign that the writer is about to sleep, and lets the
        # reader run on the same core, where what was written for it is in the cache.
        self._wakeup = [os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) for _ in range(size)]
        self._waiters: dict[int, select.poll] = {}

    def wake(self, words: Words, at: int, slot: int) -> None:
        """After storing something for the rank in `slot`, whose word is number `at`."""
        if words[at]:
            with suppress(BlockingIOError):  # it has been rung more often than it can hold
                os.write(self._wakeup[slot][1], b"!")

    def wait(self, words: Words, at: int, slot: int, ready: Callable[[], bool], looks: PollLimits = NONE) -> None:
        """Until `ready()`, or for a nap; looks so often before it sleeps."""
        for _ in range(looks.times):
            if ready():
                return
            if looks.yields:
                os.sched_yield()
        words[at] = 1
        try:
            if ready():
                return
            if self._waiter(slot).poll(NAP_MS):
                with suppress(BlockingIOError):
                    os.read(self._wakeup[slot][0], 4096)
        finally:
            words[at] = 0

    def _waiter(self, slot: int) -> select.poll:
        if slot not in self._waiters:
            self._waiters[slot] = select.poll()
            self._waiters[slot].register(self._wakeup[slot][0], select.POLLIN)
        return self._waiters[slot]

    def close(self) -> None:
        for end in (end for bell in self._wakeup for end in bell):
            os.close(end)
        self._wakeup.clear()
