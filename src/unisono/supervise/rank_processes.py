"""RankProcesses: the ranks of a supervised run as forked processes: start, hear, kill, ask where one is stuck.

The one idea: the supervisor decides, and this does. Whatever offers the same (`Ranks`) can be supervised: the tests run
the supervisor's decisions with ranks that are threads, in every order of events that they choose.

    ranks = RankProcesses(size, body, SupervisorConfig(), on_report); ranks.start(0, after=0); ended = ranks.poll(0.1)

Limits: what an end or a report means is for others to say.
"""

import signal
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, final

from unisono.environment.variables import forget_secret
from unisono.supervise.children import name_rank
from unisono.supervise.config import Body, SupervisorConfig
from unisono.supervise.processes import ChildExit, ProcessGroup, run_child
from unisono.supervise.signals import SIGNALS
from unisono.supervise.stacks import Stacks


class Ranks(Protocol):
    """What a supervisor needs of those whom it watches, by slot."""

    @property
    def pids(self) -> dict[int, int]:
        """The processes of those that live, as far as is known."""

    def start(self, slot: int, after: int) -> None:
        """One that waits for a view later than number `after`; an OSError if it could not be started."""

    def poll(self, timeout_s: float) -> list[ChildExit]:
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

    def __init__(self, size: int, body: Body, config: SupervisorConfig, on_report: Callable[[int, Any], None]) -> None:
        self._body, self._rank_of = body, config.rank_of
        self._process_group, self._stacks = ProcessGroup(on_report, grace_s=0.0), Stacks(size, config.stacks)

    @property
    def pids(self) -> dict[int, int]:
        return {slot: self._process_group.pid(slot) for slot in self._process_group.living}

    def start(self, slot: int, after: int) -> None:
        def live(report: Callable[[Any], None]) -> Any:
            name_rank(self._rank_of(slot))
            forget_secret()
            # The parent alone decides what a signal means, though SLURM may send it to everybody.
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            self._stacks.listen(slot)
            return self._body(slot, after, report)

        self._process_group.start(slot, partial(run_child, live))

    def poll(self, timeout_s: float) -> list[ChildExit]:
        return self._process_group.poll(timeout_s)

    def kill(self, slot: int) -> None:
        self._process_group.kill(slot)

    def save_stack(self, slot: int) -> str:
        return str(self._stacks.save(self._process_group, slot) or "")

    def close(self) -> None:
        try:
            self._process_group.close()
        finally:
            self._stacks.close()
