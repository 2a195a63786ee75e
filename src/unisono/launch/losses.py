"""Losses: when a run that loses ranks is given up, and what is said then.

The one idea: a death is no reason to end a run; that nobody is left is one, and so are deaths that do not stop, and a
round that ends whoever computes it (`crashes.py`).

    losses = Losses(most_deaths=100, most_crashes=5); losses.hear(ended); losses.reason(lost, view, "step {}".format)

Limits: deaths are counted within ten minutes, whoever died; replacements that never joined are no deaths.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import final

from unisono.arena import protocol
from unisono.arena.protocol import View
from unisono.launch.crashes import Crashes
from unisono.launch.crew import Ended

WINDOW_S = 600.0
"""Within which `most_deaths` are counted."""


@final
class Losses:
    """Of one run; most_crashes: as for `Crashes`."""

    def __init__(self, most_deaths: int, most_crashes: int) -> None:
        self._most_deaths, self._crashes = most_deaths, Crashes(most_crashes)
        self._deaths: deque[float] = deque()

    @property
    def crashes(self) -> int:
        """How many ranks ended by themselves, one after the other, in the round that is to be done."""
        return self._crashes.count

    def hear(self, one: Ended) -> None:
        """Somebody ended without an answer."""
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
