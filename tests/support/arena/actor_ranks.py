"""Ranks of a supervisor that are actors of a scheduler: started, heard and buried without a process or a pipe.

    ranks = ActorRanks(scheduler, body, on_report); ranks.start(0, after=0); ended = ranks.poll(0.1)

Limits: time passes only when nobody else can do anything, so nobody is ever found to be stuck.
"""

from collections.abc import Callable
from typing import Any, final

from support.arena.scheduler import Actor, Scheduler
from unisono.supervise.config import Body
from unisono.supervise.processes import ChildExit


@final
class ActorRanks:
    """As `RankProcesses`, with actors for processes and a list for their pipes."""

    def __init__(self, scheduler: Scheduler, body: Body, on_report: Callable[[int, Any], None]) -> None:
        self._scheduler, self._body, self._on_report = scheduler, body, on_report
        self._actors: dict[int, Actor] = {}
        self._news: list[tuple[int, str, Any]] = []

    @property
    def pids(self) -> dict[int, int]:
        return dict.fromkeys(self._actors, 0)

    def start(self, slot: int, after: int) -> None:
        def report(value: Any) -> None:
            self._scheduler.pause("reports")
            self.tell(slot, "report", value)

        def live() -> None:
            result = self._body(slot, after, report)
            self.tell(slot, "end", ChildExit(slot, 0, True, result, None))

        name = f"rank {slot}" + (f", forked in view {after}" if after else "")
        self._actors[slot] = self._scheduler.start(name, live, mortal=True)

    def tell(self, slot: int, kind: str, value: Any) -> None:
        self._news.append((slot, kind, value))
        self._scheduler.note_change()

    def poll(self, timeout_s: float) -> list[ChildExit]:
        self._scheduler.pause("polls")
        if timeout_s:
            self._scheduler.wait_a_while(lambda: bool(self._news))
        news, self._news = self._news, []
        if news:
            self._scheduler.note_change(own=False)
        for slot, kind, value in news:
            if kind == "report":
                self._on_report(slot, value)
            elif kind == "end":
                del self._actors[slot]
        return [value for _, kind, value in news if kind == "end"]

    def kill(self, slot: int) -> None:
        if self._actors[slot].alive:
            self._scheduler.kill(self._actors[slot])

    def bury(self, killed: Actor) -> None:
        for slot, actor in self._actors.items():
            if actor is killed:
                self.tell(slot, "end", ChildExit(slot, 9, False, None, None))

    def save_stack(self, slot: int) -> str:
        return ""

    def close(self) -> None:
        """Whoever is left is ended with the scheduler."""
