"""Supervisor: forks the ranks of a node, watches them, and sees to it that the others go on when one is lost.

The one idea: a death is a change of membership and nothing else. The supervisor lets everybody stand still, decides
what was reached (`arena/protocol.py`), takes back what was begun, and publishes who is there now; then it forks a
replacement, which joins the same way when it is ready. It alone decides, computes nothing and starts no thread.

    found = Supervisor(words, size, body, Care(restore=restore), on_report).run(position)

Any descendant may be killed at any time. A rank that raises an exception is not lost: it would raise it again, so the
run ends with it. The supervisor's own death ends the ranks.
"""

import signal
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, final

from unisono.arena import protocol
from unisono.arena.member import pulse_of
from unisono.arena.protocol import View, Words
from unisono.arena.requests import Requests
from unisono.launch.crashes import Crashes
from unisono.launch.crew import Crew, Ended, answer
from unisono.launch.lookout import Causes, Lookout
from unisono.launch.reforming import Roll, come_to_rest
from unisono.launch.signals import SIGNALS, heeding
from unisono.launch.stacks import Stacks

TICK_S = 0.1
WINDOW_S = 600.0
"""Within which `most_deaths` are counted."""
AT_ONCE, FIRST_PAUSE_S, MOST_PAUSE_S = 2, 0.05, 60.0
"""How often a replacement that dies before it joins is tried again at once; the first pause then, and the longest."""
MOST_FAILURES = 6
"""How often it is tried when nobody else is left."""
READY = "ready to join"
"""What a replacement reports when it only waits to be let in."""

Body: TypeAlias = Callable[[int, int, Callable[[Any], None]], Any]
"""body(slot, after, report): a rank's life; it waits for a view later than number `after` that it is a member of."""


@final
@dataclass(frozen=True)
class Care:
    """How ranks are looked after."""

    respawn: bool = True
    most_deaths: int = 100
    most_crashes: int = 0
    """How many ranks one round may end before it is given up; 0: any number, and they are not counted."""
    name: Callable[[int], str] = "round {}".format
    """What a round is called."""
    stall_s: float = 0.0
    """0: 60 seconds, or 20 times a usual round if that is longer."""
    pieces: float = 1.0
    """How many pieces of work a rank does in a round: pushes, where a round is an epoch."""
    stacks: Path | None = None
    """Where the stack of a rank that is stuck is written."""
    restore: Callable[[View], Any] = lambda view: None
    """Takes back what was begun of a round that is to be done again."""
    on_event: Callable[[dict[str, Any]], None] = lambda event: None
    """Told of deaths, take-overs and joins."""
    tick: Callable[[], None] = lambda: None
    """Called about ten times a second."""


@final
@dataclass
class Outcome:
    """How the run ended."""

    results: dict[int, Any] = field(default_factory=dict)
    """What ranks returned."""
    lost: str = ""
    """Why the run could not go on; empty if it could."""
    view: View | None = None
    """What had been reached when the last rank ended; if the run could not go on, nothing is begun beyond it."""
    crashes: int = 0
    """If it could not: how many ranks ended by themselves, one after the other, in the round that was to be done."""
    takeovers: int = 0
    restarts: int = 0
    reforming_s: list[float] = field(default_factory=list)
    """How long each change of membership after a death took, from the news of it."""


@final
class Supervisor:
    """Of `size` ranks, for one run."""

    def __init__(self, words: Words, size: int, body: Body, care: Care, on_report: Callable[[int, Any], None]) -> None:
        self._words, self._size, self._body, self._care, self._on_report = words, size, body, care, on_report
        self._crew = Crew(self._hear, grace_s=0.0)
        self._requests = Requests(words)
        self._lookout, self._doorman = Lookout(words, care.stall_s, care.pieces), Lookout(words, care.stall_s)
        self._stacks = Stacks(size, care.stacks)
        self._outcome = Outcome()
        self._joining: dict[int, bool] = {}  # slot -> whether it is ready
        self._due: dict[int, float] = {}  # slot -> when its replacement is to be forked
        self._failures: dict[int, int] = {}  # slot -> replacements that died before they joined
        self._deaths: deque[float] = deque()
        self._causes, self._crashes = Causes(), Crashes(care.most_crashes)
        self._signals: dict[int, float] = {}

    @property
    def pids(self) -> dict[int, int]:
        """The processes of the ranks that live."""
        return {slot: self._crew.pid(slot) for slot in self._crew.living}

    def run(self, position: int = 0) -> Outcome:
        """From after round `position` to the end; `RankFailed` if a rank raised an exception."""
        self._view = protocol.first_view(self._words, range(self._size), self._size, position)
        with closing(self._stacks), closing(self._crew), self.halting():
            for slot in range(self._size):
                self._start(slot, after=0)
            while self._crew.living and not self._outcome.lost:
                lost = self._judge(self._crew.poll(TICK_S))
                # Once somebody has come to the end, whoever dies is not missed, and whoever comes is not needed.
                if self._outcome.results:
                    self._send_away(self._joining)
                else:
                    self._forget_newcomers(self._newcomers_of(lost))
                    if lost or any(self._joining.values()):
                        self._reform(lost)
                    self._start_due()
                self._watch()
        if self._outcome.view is None:
            self._outcome.view = protocol.outcome(self._words, self._view, ())
        return self._outcome

    # --- ranks -------------------------------------------------------------------------------------------------------

    def _start(self, slot: int, after: int) -> None:
        def live(report: Callable[[Any], None]) -> Any:
            # The parent alone decides what a signal means, though SLURM may send it to everybody.
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            self._stacks.listen(slot)
            return self._body(slot, after, report)

        self._crew.start(slot, partial(answer, live))

    def _hear(self, slot: int, value: Any) -> None:
        if value != READY:
            self._on_report(slot, value)
        elif slot in self._joining:
            self._joining[slot] = True

    def _judge(self, ended: list[Ended]) -> dict[int, str]:
        """Takes results; those who are lost, and why."""
        lost: dict[int, str] = {}
        for one in ended:
            if one.failure is not None:
                one.check()
            if one.answered:
                self._outcome.results[one.rank] = one.result
            else:
                self._crashes.hear(one)
                lost[one.rank] = self._causes.of(one)
        return lost

    # --- membership --------------------------------------------------------------------------------------------------

    def _reform(self, lost: dict[int, str]) -> None:
        """A new view, without those who are `lost` and with those who are ready to join."""
        begun, old = time.perf_counter(), self._view
        pulses = {slot: pulse_of(self._words, slot) for slot in old.members}

        def staying() -> list[int] | None:
            members = self._working()
            # The last rank is not lost while a replacement is on its way.
            waited_for = not members and not self._outcome.results and bool(self._coming() or self._due)
            alone = waited_for and not any(map(self._joining.get, self._coming()))
            self._start_due()
            return None if alone else members

        def listen() -> bool:
            more = self._crew.poll(0.0)
            lost.update(self._judge(more))
            self._forget_newcomers(self._newcomers_of(lost))  # somebody may be waiting for them alone
            return bool(more)

        def end_late(late: list[int] | None) -> None:
            if late is None:
                for slot in self._coming():
                    self._end_stuck(slot, self._doorman)
                return
            for slot in late:
                if pulses[slot] == (pulse := pulse_of(self._words, slot)):
                    self._end_stuck(slot, self._lookout)
                pulses[slot] = pulse  # one that writes to a slow disk cannot stand still, but shows that it lives

        members = come_to_rest(self._words, Roll(staying, listen, self._lookout.patience_s, end_late))
        over = bool(self._outcome.results)
        if over and not members:
            return
        joined = [slot for slot, ready in self._joining.items() if ready and slot in self._crew.living and not over]
        view = protocol.outcome(self._words, old, [*members, *joined])
        self._care.restore(view)
        for slot in joined:
            del self._joining[slot]
            self._failures.pop(slot, None)
        self._note(lost, joined, view, begun)
        if reason := self._hopeless(lost, view):
            self._outcome.lost, self._outcome.view, self._outcome.crashes = reason, view, self._crashes.count
            return
        protocol.publish(self._words, view, self._size)
        self._view = view
        self._lookout.forget()
        if self._care.respawn and not over:
            self._due |= dict.fromkeys(lost, 0.0)
            self._start_due()

    def _working(self) -> list[int]:
        """Members that live."""
        living = self._crew.living
        return [slot for slot in self._view.members if slot in living and slot not in self._joining]

    def _coming(self) -> list[int]:
        """Replacements that have not joined yet."""
        return [slot for slot in self._joining if slot in self._crew.living]

    def _start_due(self) -> None:
        """Forks the replacements whose time has come."""
        for slot in [slot for slot, due in self._due.items() if due <= time.monotonic()]:
            del self._due[slot]
            self._doorman.forget()
            try:
                self._joining[slot] = False
                self._start(slot, after=self._view.number)
                self._outcome.restarts += 1
            except OSError as error:  # no memory, or no room for another process: the others go on
                self._forget_newcomers({slot: f"could not be started: {error.strerror}"})

    def _newcomers_of(self, lost: dict[int, str]) -> dict[int, str]:
        """Takes replacements that have not joined out of `lost`."""
        return {slot: lost.pop(slot) for slot in [*lost] if slot in self._joining}

    def _forget_newcomers(self, lost: dict[int, str]) -> None:
        """Replacements that did not live to join: nobody misses them, and others are tried, later and later."""
        for slot, cause in lost.items():
            self._joining.pop(slot, None)
            failures = self._failures[slot] = self._failures.get(slot, 0) + 1
            again = self._care.respawn and (failures < MOST_FAILURES or bool(self._working()))
            self._care.on_event({"kind": "newcomer", "rank": slot, "cause": cause, "again": again})
            if again:
                pause_s = FIRST_PAUSE_S * 4.0 ** min(failures - AT_ONCE, 10) if failures > AT_ONCE else 0.0
                self._due[slot] = time.monotonic() + min(MOST_PAUSE_S, pause_s)

    def _note(self, lost: dict[int, str], joined: list[int], view: View, begun: float) -> None:
        took_s = time.perf_counter() - begun
        reached = protocol.PHASES[view.reached]
        here = {"position": view.position, "reached": reached, "ranks": len(view.members), "s": took_s}
        for slot, cause in lost.items():
            self._deaths.append(time.monotonic())
            worked = slot in self._view.members
            self._care.on_event({"kind": "death", "rank": slot, "cause": cause, "worked": worked, **here})
        if any(slot in self._view.members for slot in lost):
            self._outcome.takeovers += 1
            self._outcome.reforming_s.append(took_s)
        for slot in joined:
            self._care.on_event({"kind": "join", "rank": slot, **here})

    def _hopeless(self, lost: dict[int, str], view: View) -> str:
        while self._deaths and self._deaths[0] < time.monotonic() - WINDOW_S:
            self._deaths.popleft()
        begun = view.position + (view.reached == protocol.COMMIT)
        self._crashes.note(begun, lost)
        told = "; ".join(f"rank {slot} {cause}" for slot, cause in lost.items())
        if self._crashes.hopeless or (self._crashes.count > 1 and not view.members):
            return f"{self._care.name(begun)} ended {self._crashes.count} ranks one after another, the last: {told}"
        if not view.members:
            return f"no rank is left: {told}"
        if len(self._deaths) > self._care.most_deaths:
            many = len(self._deaths)
            return f"{many} rank{'s' * (many != 1)} died within {WINDOW_S / 60:g} minutes, the last: {told}"
        if view.number >= protocol.MOST_VIEWS - 1:
            return f"the membership changed {view.number} times, and numbers have run out"
        return ""

    # --- looking after them ------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        if self._signals:
            self._requests.ask_to_halt()
        self._care.tick()
        self._causes.look()
        for lookout, slots in ((self._lookout, self._working()), (self._doorman, self._coming())):
            for slot in lookout.stuck(slots):
                self._end_stuck(slot, lookout)

    def _send_away(self, slots: Iterable[int]) -> None:
        for slot in self._crew.living.intersection(slots) - self._causes.known.keys():
            self._causes.known[slot] = "came too late"
            self._crew.kill(slot)

    def _end_stuck(self, slot: int, lookout: Lookout) -> None:
        """Saves the stack of a rank that did not move for as long as `lookout` waits, and ends it, once."""
        if slot in self._causes.known:
            return  # its end takes a moment
        told = f"did not move for {lookout.patience_s():g} s (--stall-timeout) and was ended"
        lookout.accuse()
        where = self._stacks.save(self._crew, slot)
        self._causes.known[slot] = told + (f" (its stack: {where})" if where else "")
        self._crew.kill(slot)

    def halting(self) -> AbstractContextManager[None]:
        """Signals ask for an end at a round's end; the second of a kind ends at once. May be held longer than `run`."""
        return heeding(lambda: None, self._signals, echo_s=0.0)
