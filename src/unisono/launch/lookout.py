"""Lookout: which rank is stuck, and what it was doing; why ranks ended. Step counters, not heartbeats.

The one idea: a rank that works moves its flag or its pulse (`arena/member.py`). One that has moved neither for a long
time, while it is behind everybody else, is what the others wait for. Time is counted only while this process itself is
awake, so that a machine that was suspended accuses nobody.

    lookout = Lookout(words, stall_s=10); lookout.stuck(members)         # about ten times a second
"""

import faulthandler
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import final

from unisono.arena import protocol
from unisono.arena.member import pulse_of
from unisono.arena.protocol import Words
from unisono.launch.children import how_it_ended
from unisono.launch.crew import Crew, Ended
from unisono.resources import memory_kills

LEAST_S, TIMES_MEDIAN, FIRST_S = 60.0, 20, 1800.0
_LONGEST_TICK_S = 1.0
STACK_SIGNAL = signal.SIGUSR2


@final
class Lookout:
    """`stall_s` 0: 60 seconds, or 20 usual rounds if that is longer; half an hour for the first one."""

    def __init__(self, words: Words, stall_s: float) -> None:
        self._words, self._stall_s = words, stall_s
        self._looked = time.monotonic()
        self.forget()
        self._round_s = 0.0
        self._round: tuple[int, float] | None = None

    def forget(self) -> None:
        """Everybody starts anew."""
        self._seen: dict[int, tuple[int, int]] = {}
        self._still_s: dict[int, float] = {}

    def patience_s(self) -> float:
        """How long a rank may stand still. Before the first round nobody knows how long one takes."""
        return self._stall_s or (max(LEAST_S, TIMES_MEDIAN * self._round_s) if self._round_s else FIRST_S)

    def stuck(self, members: list[int]) -> list[int]:
        """The members that everybody waits for, and that have not moved for too long."""
        now = time.monotonic()
        elapsed_s, self._looked = min(now - self._looked, _LONGEST_TICK_S), now
        flags = {slot: protocol.flag_of(self._words, slot) for slot in members}
        for slot, flag in flags.items():
            mark = flag, pulse_of(self._words, slot)
            moved = self._seen.get(slot) != mark
            self._still_s[slot] = 0.0 if moved else self._still_s.get(slot, 0.0) + elapsed_s
            self._seen[slot] = mark
        if not flags:
            return []
        last = min(flags.values())
        self._time_rounds(last, now)
        behind = [slot for slot, flag in flags.items() if flag == last]
        return [slot for slot in behind if self._still_s[slot] > self.patience_s()]

    def _time_rounds(self, flag: int, now: float) -> None:
        _, position, _ = protocol.unpack(flag)
        if self._round is not None and position > self._round[0]:
            took_s = (now - self._round[1]) / (position - self._round[0])
            self._round_s = took_s if not self._round_s else 0.8 * self._round_s + 0.2 * took_s
        if self._round is None or position > self._round[0]:
            self._round = position, now


@final
class Causes:
    """Why ranks ended; `known`: those that the supervisor itself ended, and what for."""

    def __init__(self) -> None:
        self.known: dict[int, str] = {}
        self._memory_kills = memory_kills()

    def of(self, one: Ended) -> str:
        """Asked once for each."""
        if told := self.known.pop(one.rank, ""):
            return told
        kills = memory_kills()
        if os.WIFSIGNALED(one.status) and os.WTERMSIG(one.status) == signal.SIGKILL and kills > self._memory_kills:
            self._memory_kills = kills
            return "was killed for memory (SIGKILL; the limit of its cgroup was reached)"
        return how_it_ended(one.status)


@final
class Stacks:
    """Where ranks write their Python stack when asked by a signal, whatever they are doing: memory, a piece for each.

    Files are made in `folder` only when there is something to keep; None: stacks are not asked for.
    """

    def __init__(self, size: int, folder: Path | None) -> None:
        self._folder = folder
        self._memory = [os.memfd_create(f"stack of rank {slot}", os.MFD_CLOEXEC) for slot in range(size)]

    def listen(self, slot: int) -> None:
        """In a rank."""
        faulthandler.register(STACK_SIGNAL, file=self._memory[slot], all_threads=True)

    def save(self, crew: Crew, slot: int, wait_s: float = 1.0) -> Path | None:
        """In the supervisor: asks for the stack and waits for it a little; the file, if there is one."""
        if self._folder is None:
            return None
        memory, path = self._memory[slot], self._folder / f"rank-{slot}.stack"
        before = os.fstat(memory).st_size
        with suppress(OSError):
            crew.signal(slot, STACK_SIGNAL)
            crew.signal(slot, signal.SIGCONT)  # a stopped process handles no signal
            deadline = time.monotonic() + wait_s
            while os.fstat(memory).st_size == before and time.monotonic() < deadline:
                time.sleep(0.005)
            time.sleep(0.02)  # the rest of it
            text = os.pread(memory, 1 << 20, before)
            if b'File "' in text:  # now and then Python fails to read its own stack, and ends with it
                self._folder.mkdir(exist_ok=True)
                with open(path, "ab") as file:
                    file.write(text)
                return path
        return None

    def close(self) -> None:
        for memory in self._memory:
            os.close(memory)
