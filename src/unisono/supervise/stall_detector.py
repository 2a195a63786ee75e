"""StallDetector: which rank is stuck, and why ranks ended. Step counters, not heartbeats.

The one idea: a rank that works moves its flag or its pulse (`arena/membership/member.py`). One that has moved neither
for a long time, while it is behind everybody else, is what the others wait for. Time is counted only while a rank is
behind, so that nobody is accused who has just been waiting for somebody else; and only while this process itself is
awake, so that a machine that was suspended accuses nobody. Ranks that are ended for it twice in one round may only be
slow there:
each time the next one has twice as long.

    stall_detector = StallDetector(words, stall_s=10); stall_detector.stuck(members)         # about ten times a second
"""

import os
import signal
import time
from typing import final

from unisono.arena.membership import protocol
from unisono.arena.membership.member import pulse_of
from unisono.arena.membership.protocol import Words
from unisono.resources import memory_kills
from unisono.supervise.children import describe_end
from unisono.supervise.processes import ChildExit

LEAST_S, TIMES_MEDIAN, FIRST_S = 60.0, 20, 1800.0
_LONGEST_TICK_S, _TICKS = 1.0, 5
"""What one look counts at most, also as a part of the patience: one that is late accuses nobody."""
_MOST_DOUBLINGS = 6
_LAG_S = 10.0
"""How much older a count of memory kills is than a death that it may explain: a process takes a while to die."""


@final
class StallDetector:
    """`stall_s` 0: 60 seconds, or 20 usual rounds if that is longer; half an hour for the first one.

    pieces: how many pieces of work, each with a sign of life, a rank does in a round; 20 of them if there are several.
    """

    def __init__(self, words: Words, stall_s: float, pieces: float = 1.0) -> None:
        self._words, self._stall_s, self._pieces = words, stall_s, pieces
        self._looked = time.monotonic()
        self._accused, self._doublings = False, 0
        self.forget()
        self._round_s = 0.0
        self._round: tuple[int, float] | None = None

    def forget(self) -> None:
        """Everybody starts anew; after an accusation with more time, until a round is done."""
        self._doublings = min(_MOST_DOUBLINGS, self._doublings + self._accused)
        self._accused = False
        self._seen: dict[int, tuple[int, int]] = {}
        self._still_s: dict[int, float] = {}
        self._behind: list[int] = []

    def accuse(self) -> None:
        """Somebody is ended for standing still."""
        self._accused = True

    def patience_s(self) -> float:
        """How long a rank may stand still. Before the first round nobody knows how long one takes."""
        piece_s = self._round_s / self._pieces
        usual_s = self._stall_s or (max(LEAST_S, TIMES_MEDIAN * piece_s) if piece_s else FIRST_S)
        return usual_s * (1 << self._doublings)

    def stuck(self, members: list[int]) -> list[int]:
        """The members that everybody waits for, and that have not moved for too long."""
        now = time.monotonic()
        longest_s = min(_LONGEST_TICK_S, self.patience_s() / _TICKS)
        elapsed_s, self._looked = min(now - self._looked, longest_s), now
        flags = {slot: protocol.flag_of(self._words, slot) for slot in members}
        if not flags:
            return []
        for slot, flag in flags.items():
            mark = flag, pulse_of(self._words, slot)
            counts = slot in self._behind and self._seen.get(slot) == mark
            self._still_s[slot] = self._still_s[slot] + elapsed_s if counts else 0.0
            self._seen[slot] = mark
        last = min(flags.values())
        self._time_rounds(last, now)
        self._behind = [slot for slot, flag in flags.items() if flag == last]
        return [slot for slot in self._behind if self._still_s[slot] > self.patience_s()]

    def _time_rounds(self, flag: int, now: float) -> None:
        _, position, _ = protocol.unpack(flag)
        if self._round is not None and position > self._round[0]:
            took_s = (now - self._round[1]) / (position - self._round[0])
            self._round_s = took_s if not self._round_s else 0.8 * self._round_s + 0.2 * took_s
        if self._round is None or position > self._round[0]:
            self._round = position, now
            self._doublings = 0


@final
class EndCauses:
    """Why ranks ended; `known`: those that the supervisor itself ended, and what for."""

    def __init__(self) -> None:
        self.known: dict[int, str] = {}
        self._memory_kills = self._newer = memory_kills()
        self._counted = time.monotonic()

    def look(self) -> None:
        """Now and then: kills of long ago, of others within the same limit, explain nothing that happens now."""
        if (now := time.monotonic()) - self._counted > _LAG_S:
            self._memory_kills, self._newer, self._counted = self._newer, memory_kills(), now

    def of(self, one: ChildExit) -> str:
        """Asked once for each."""
        if told := self.known.pop(one.rank, ""):
            return told
        kills = memory_kills()
        if os.WIFSIGNALED(one.status) and os.WTERMSIG(one.status) == signal.SIGKILL and kills > self._memory_kills:
            self._memory_kills = self._newer = kills
            return "was killed for memory (SIGKILL; the limit of its cgroup was reached)"
        return describe_end(one.status)
