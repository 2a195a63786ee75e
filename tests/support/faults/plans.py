"""Fault plans: which process dies, at which point of the protocol. Deterministic, and seen to have happened.

The one idea: everything that a rank tells the others is a store into the shared words
(`arena/membership/protocol.py`), and these are a plain object with __getitem__ and __setitem__. So they are wrapped,
and the wrapper ends its own process when it is about to store a given word, or has just stored it. Ranks are forked,
hence a patch in the test's process reaches them, and nothing in the package knows of plans.

    plan = Plan(kill_at(1, 2, READY, "after")); plan.install(monkeypatch); ...; assert plan.fired() == [True]

Every fault strikes once, whoever replaces its victim; which ones did is counted in shared memory.
"""

import mmap
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from unisono.arena.membership.member import Member
from unisono.arena.membership.protocol import COMMIT, MARKS, PULSE, REQUESTS, line, unpack
from unisono.arena.memory.segment import Sections
from unisono.optim.base import Optimizer
from unisono.runs.supervised_training import SupervisedRun

FLAG, FROZEN, MARK, BUFFERS_MARK, PULSED = "flag", "frozen", "mark", "buffers mark", "pulse"
_WORDS = {0: FLAG, 1: FROZEN, MARKS: MARK, MARKS + 3: BUFFERS_MARK, PULSE: PULSED}
HALT, SPARE = "halt", "spare"
_REQUESTS = {REQUESTS + 3: HALT, REQUESTS + 4: SPARE}
UPDATE, REPORT, BIRTH, ENTRY = "update", "report", "birth", "entry"
"""In the middle of an update; around a report; when the process begins; while a replacement waits to be let in."""


@dataclass(frozen=True)
class Fault:
    """`position` and `phase` 0: any. life: how often the rank was replaced before. `act` is what the process does.

    The position of FROZEN is the number of the view to come: 2 for the first change of membership.
    """

    rank: int
    at: str
    when: str = "before"
    position: int = 0
    phase: int = 0
    life: int = 0
    act: Callable[[Any], Any] = lambda words: os.kill(os.getpid(), signal.SIGKILL)

    def __str__(self) -> str:
        return f"rank {self.rank} {self.when} {self.at} {self.position}.{self.phase}"


def stop(words: Any) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def loop_for_ever(words: Any) -> None:
    while True:
        pass


def fail(words: Any) -> None:
    raise ValueError("planned")


def wait_until_still(slot: int, number: int) -> Callable[[Any], None]:
    """Waits until another rank stands still for view `number`."""

    def wait(words: Any) -> None:
        while words[line(slot) + 1] < number:
            time.sleep(0.001)

    return wait


def go_on_when_all_are_there(monkeypatch: Any) -> None:
    """Else a run might end before a replacement that is slow has come."""
    meet = Member.barrier

    def met(member: Member, position: int, phase: int) -> bool:
        if member.count < member.size:
            member.wait(lambda: False)  # until the membership changes
        return meet(member, position, phase)

    monkeypatch.setattr(Member, "barrier", met)


def kill_at(rank: int, position: int, phase: int, when: str) -> Fault:
    """Around the arrival of a rank at a meeting."""
    return Fault(rank, FLAG, when, position, phase)


class Plan:
    """Faults, and what has become of them."""

    def __init__(self, *faults: Fault) -> None:
        self._faults = faults
        self._shared = mmap.mmap(-1, 4096)  # a byte a fault, then one a slot: how often it was born
        self._slot = self._life = -1  # this process is no rank
        self.position = 0
        self.words: Any = None

    def fired(self) -> list[bool]:
        return [bool(self._shared[number]) for number in range(len(self._faults))]

    def install(self, monkeypatch: Any) -> "Plan":
        """Into this process, and so into every rank that it forks."""
        words, live = Sections.words, SupervisedRun._live

        def born(supervised_run: SupervisedRun, slot: int, after: int, report: Callable[[Any], None]) -> Any:
            self.enter(slot)
            return live(supervised_run, slot, after, self.watched(report))

        def wired(*given: Any) -> Tripwire:
            self.words = words(*given)
            return Tripwire(self.words, self)

        monkeypatch.setattr(Sections, "words", wired)
        monkeypatch.setattr(SupervisedRun, "_live", born)
        monkeypatch.setattr(Optimizer, "update", interruptible(Optimizer.update, self))
        monkeypatch.setattr("unisono.training.epoch_end.shard_overhead", lambda *given: 1.0)  # 50 ms a run
        return self

    def enter(self, slot: int) -> None:
        self._slot, self._life = slot, self._shared[1024 + slot]
        self._shared[1024 + slot] += 1
        self.strike(BIRTH, "before")

    def watched(self, report: Callable[[Any], None]) -> Callable[[Any], None]:
        def told(value: Any) -> None:
            kind = type(value).__name__
            self.strike(REPORT + " " + kind, "before", self.position)
            report(value)
            self.strike(REPORT + " " + kind, "after", self.position)

        return told

    def stored(self, at: int, value: int, when: str) -> None:
        """This process stores `value` into word `at`."""
        if self._slot < 0:
            return
        name = _REQUESTS.get(at) or _WORDS.get(at - line(self._slot), "")
        phase = 0
        if name == FLAG:
            _, position, phase = unpack(value)
            if when == "after":
                self.position = position + (phase == COMMIT)
        elif name in (MARK, BUFFERS_MARK, FROZEN):
            position = value
        else:
            position = self.position or 1
        self.strike(name, when, position, phase)

    def read(self, at: int) -> None:
        if at == 0 and self._slot >= 0 and self._life and not self.position:
            self.strike(ENTRY, "before")

    def strike(self, at: str, when: str, position: int = 0, phase: int = 0, leave: Callable[[], None] = int) -> None:
        """Ends this process if that is planned here; `leave` is what it does last."""
        for number, fault in enumerate(self._faults):
            if (fault.rank, fault.at, fault.when, fault.life) != (self._slot, at, when, self._life):
                continue
            if fault.position in (0, position) and fault.phase in (0, phase) and not self._shared[number]:
                self._shared[number] = 1
                leave()
                fault.act(self.words)


class Tripwire:
    """The words of an arena."""

    def __init__(self, words: Any, plan: Plan) -> None:
        self._words, self._plan = words, plan

    def __getitem__(self, at: int) -> int:
        self._plan.read(at)
        return self._words[at]

    def __setitem__(self, at: int, value: int) -> None:
        self._plan.stored(at, value, "before")
        self._words[at] = value
        self._plan.stored(at, value, "after")


def interruptible(update: Callable[..., None], plan: Plan) -> Callable[..., None]:
    """An optimizer's update that may end in the middle: half of what it changes is changed, to whatever."""

    def updated(optimizer: Any, params: np.ndarray, gradient: np.ndarray, state: list[np.ndarray], *rest: Any) -> None:
        def spoil() -> None:
            for vector in (params, *state):
                vector[: len(vector) // 2] += 1.0

        plan.strike(UPDATE, "before", plan.position, leave=spoil)
        update(optimizer, params, gradient, state, *rest)
        plan.strike(UPDATE, "after", plan.position)

    return updated
