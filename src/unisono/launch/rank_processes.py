"""RankProcesses: the ranks of a supervised run as forked processes: start, hear, kill, ask where one is stuck.

The one idea: the supervisor decides, and this does. Whatever offers the same (`Ranks`) can be supervised: the tests run
the supervisor's decisions with ranks that are threads, in every order of events that they choose.

    ranks = RankProcesses(size, body, Care(), on_report); ranks.start(0, after=0); ended = ranks.poll(0.1)

Limits: what an end or a report means is for others to say.
"""

import signal
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, final

from unisono.launch.children import name_rank
from unisono.launch.crew import Crew, Ended, answer
from unisono.launch.environments import forget_secret
from unisono.launch.signals import SIGNALS
from unisono.launch.stacks import Stacks
from unisono.launch.supervision import Body, Care


class Ranks(Protocol):
    """What a supervisor needs of those whom it watches, by slot."""

    @property
    def pids(self) -> dict[int, int]:
        """The processes of those that live, as far as is known."""

    def start(self, slot: int, after: int) -> None:
        """One that waits for a view later than number `after`; an OSError if it could not be started."""

    def poll(self, timeout_s: float) -> list[Ended]:
        """Waits until something is reported, which is passed on, or somebody ends; those who ended."""

    def kill(self, slot: int) -> None:
        """Its end is seen by the next `poll`."""

    def save_stack(self, slot: int) -> str:
        """Where the stack of one that is stuck was written; empty if nowhere."""

    def close(self) -> None:
        """Ends whoever still lives."""


@final
class RankProcesses:
    """`size` of them, each of which lives as `body` tells; `on_report(slot, value)` is told what they report."""

    def __init__(self, size: int, body: Body, care: Care, on_report: Callable[[int, Any], None]) -> None:
        self._body, self._rank_of = body, care.rank_of
        self._crew, self._stacks = Crew(on_report, grace_s=0.0), Stacks(size, care.stacks)

    @property
    def pids(self) -> dict[int, int]:
        return {slot: self._crew.pid(slot) for slot in self._crew.living}

    def start(self, slot: int, after: int) -> None:
        def live(report: Callable[[Any], None]) -> Any:
            name_rank(self._rank_of(slot))
            forget_secret()
            # The parent alone decides what a signal means, though SLURM may send it to everybody.
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            self._stacks.listen(slot)
            return self._body(slot, after, report)

        self._crew.start(slot, partial(answer, live))

    def poll(self, timeout_s: float) -> list[Ended]:
        return self._crew.poll(timeout_s)

    def kill(self, slot: int) -> None:
        self._crew.kill(slot)

    def save_stack(self, slot: int) -> str:
        return str(self._stacks.save(self._crew, slot) or "")

    def close(self) -> None:
        try:
            self._crew.close()
        finally:
            self._stacks.close()
