"""Scheduler: actors of which one moves at a time; who moves at which point is decided from outside, and written down.

The one idea: real code is run, and every access to what actors share is a *point* at which the scheduler may let
somebody else go on, or end the actor: it never runs again, and what it wrote stays. Between points nobody is
interrupted. Without interventions an actor runs until it has to wait; then the next in a fixed order does. So a run is
decided by its interventions alone, {point: action}, and can be made again.

    scheduler = Scheduler(lambda number, scheduler: {37: KILL, 52: 1}.get(number))
    scheduler.start("supervisor", body); fault = scheduler.run(); scheduler.close()

An actor that waits runs again when somebody else has changed something (`note_change`). If nobody can run, that is a
hang. Actors are greenlets, which playwright brings along: a switch between threads takes a hundred times as long.

Limits: memory is sequentially consistent here; processors that reorder stores are `arena/memory/fence.py`'s business.
"""

import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, TypeAlias, final

from greenlet import getcurrent, greenlet

KILL, HALT = "kill", "halt"
Action: TypeAlias = int | str | None
"""KILL: the actor dies here. HALT: a signal asks for an end. A number: the so many-th of the others who could run goes
on instead, and this one when nobody else can. None: it goes on."""

MOST_POINTS = 20_000


class Killed(BaseException):
    """Ends an actor whose run is over."""


class Point(NamedTuple):
    """Where something could have happened."""

    actor: str
    what: str
    at: int
    """Which word, if it is one; else -1."""
    others: int
    """How many others could have gone on instead."""
    mortal: bool


@final
class Actor:
    """One of them."""

    def __init__(self, name: str, fiber: greenlet, *, mortal: bool) -> None:
        self.name, self.fiber, self.mortal = name, fiber, mortal
        self.alive, self.changes = True, 0
        self.seen = -1
        """While it waits: what others had changed when it looked; -1: it does not wait."""
        self.delayed = False
        """Whether another one was let go on instead: then it comes last."""
        self.ticks, self.ticked = False, -1
        """Whether its wait ends when time passes; what had changed when that happened last."""


@final
class Scheduler:
    """decide(number, scheduler): what happens at a point. The end of the first actor is the end of the run."""

    def __init__(
        self,
        decide: Callable[[int, "Scheduler"], Action],
        on_death: Callable[[Actor], None] = lambda actor: None,
        on_halt: Callable[[], None] = lambda: None,
    ) -> None:
        self._decide, self._on_death, self._on_halt = decide, on_death, on_halt
        self.actors: list[Actor] = []
        self.points: list[Point] = []
        self.taken: dict[int, Action] = {}
        """The interventions that had an effect: with these the run can be made again."""
        self._fault, self._changes, self._over = "", 0, False
        self._thread = threading.get_ident()
        self._hub = getcurrent()

    # --- for whoever makes a run -------------------------------------------------------------------------------------

    def start(self, name: str, body: Callable[[], None], *, mortal: bool = False) -> Actor:
        """One more actor, which moves when its turn comes; mortal: it may be killed."""
        actor = Actor(name, greenlet(body, self._hub), mortal=mortal)
        self.actors.append(actor)
        return actor

    def run(self) -> str:
        """Until the first actor has returned; what went wrong, empty if nothing did."""
        self.now = self.actors[0]
        while not self._over:
            try:
                self.now.fiber.switch()  # comes back when somebody has returned or failed, or all of it is over
            except Exception:
                self._fault = f"{self.now.name} failed:\n{traceback.format_exc()}"
                break
            if self._over or self.now is self.actors[0]:
                break
            self.now.alive = False
            self.note_change()
            others = self.others() or self._after_a_while()
            if not others:
                self._fault = self._hang()
                break
            self.now = others[0]
            self.now.delayed = False
        self._over = True
        return self._fault

    def close(self) -> None:
        """Ends those who are left."""
        for actor in self.actors:
            if not actor.fiber.dead:
                with suppress(Killed):
                    actor.fiber.throw(Killed)

    # --- for actors --------------------------------------------------------------------------------------------------

    def pause(self, what: str, at: int = -1) -> None:
        """A point: the actor is about to do `what`."""
        if threading.get_ident() != self._thread:
            return  # a thread that real code has started for itself
        if self._over:
            raise Killed
        number, others = len(self.points), self.others()
        self.points.append(Point(self.now.name, what, at, len(others), self.now.mortal))
        if number >= MOST_POINTS:
            self._stop(f"no end after {number} points")
        action = self._decide(number, self)
        if action is None:
            return
        if action == KILL:
            if self.now.mortal:
                self.taken[number] = action
                self.kill(self.now)
                self._hand_over()
        elif action == HALT:
            self.taken[number] = action
            self._on_halt()
        elif int(action) <= len(others):
            self.taken[number] = action
            self.now.delayed = True
            self._switch(others[int(action) - 1])

    def wait_until(self, ready: Callable[[], bool], timeout_s: float = 0.0) -> bool:
        """As `arena/sync/waiting.py`'s, but for the time, which does not pass here."""
        me = self.now
        while True:
            seen = self._changes - me.changes
            if ready():
                return True
            if self._changes - me.changes == seen:
                me.seen = seen
                self._hand_over()
                me.seen = -1

    def wait_a_while(self, ready: Callable[[], bool]) -> None:
        """The same, but time passes when nobody else can do anything; once, until somebody does."""
        me = self.now
        while not ready():
            me.seen, me.ticks = self._changes - me.changes, True
            self._hand_over()
            me.seen, me.ticks = -1, False
            if me.ticked == self._changes:
                return

    def note_change(self, *, own: bool = True) -> None:
        """Something is changed by whoever moves; own: it need not look again itself because of that."""
        self._changes += 1
        self.now.changes += own

    def kill(self, actor: Actor) -> None:
        """It never runs again."""
        actor.alive = False
        self._on_death(actor)

    def others(self) -> list[Actor]:
        """Those who could go on instead of the one that moves, the next in the order first."""
        at, changes = self.actors.index(self.now), self._changes
        found, last = [], []
        for actor in (*self.actors[at + 1 :], *self.actors[:at]):
            if actor.alive and (actor.seen < 0 or changes - actor.changes > actor.seen):
                (last if actor.delayed else found).append(actor)
        return found + last

    # --- turns -------------------------------------------------------------------------------------------------------

    def _hand_over(self) -> None:
        """To the next one; comes back when it is this one's turn again."""
        others = self.others() or self._after_a_while()
        if not others:
            self._stop(self._hang())
        if others[0] is not self.now:
            self._switch(others[0])

    def _after_a_while(self) -> list[Actor]:
        """Nobody can go on: those who go on when time passes, unless nothing came of it the last time."""
        found = [actor for actor in self.actors if actor.alive and actor.ticks and actor.ticked != self._changes]
        for actor in found:
            actor.ticked = self._changes
        return found

    def _switch(self, other: Actor) -> None:
        other.delayed, self.now = False, other
        other.fiber.switch()

    def _hang(self) -> str:
        return f"a hang: {', '.join(actor.name for actor in self.actors if actor.alive)} wait for ever"

    def _stop(self, fault: str) -> None:
        self._fault, self._over = fault, True
        self._hub.switch()
