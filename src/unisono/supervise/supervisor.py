"""Supervisor: forks the ranks of a node, watches them, and sees to it that the others go on when one is lost.

The one idea: a death is a change of membership and nothing else. The supervisor lets everybody stand still, decides
what was reached (`arena/membership/protocol.py`), takes back what was begun, and publishes who is there now; it forks a
replacement (`failure_policy.py`), which joins the same way when it is ready. It alone decides, also when to give
up (`failure_policy.py`), computes nothing and starts no thread.

    found = Supervisor(words, size, body, SupervisorConfig(restore=restore), on_report).run(position)

Any descendant may be killed at any time. A rank that raises an exception is not lost: it would raise it again, so the
run ends with it. The supervisor's own death ends the ranks.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from typing import Any, final

from unisono.arena.arena import begin
from unisono.arena.membership import protocol
from unisono.arena.membership.halt_and_snapshot_requests import Requests
from unisono.arena.membership.member import pulse_of
from unisono.arena.membership.protocol import View, Words
from unisono.messages.events import (
    NOBODY,
    OTHERS,
    REPLACEMENT,
    RankDied,
    RankJoined,
    ReplacementFailed,
    StopRequested,
)
from unisono.messages.rank_reports import ReadyToJoin, Report
from unisono.os_limits import naming_shortage
from unisono.supervise.config import Body, SupervisorConfig, SupervisorResult
from unisono.supervise.failure_policy import FailurePolicy, Replacements
from unisono.supervise.processes import ChildExit
from unisono.supervise.rank_processes import RankProcesses, Ranks
from unisono.supervise.signals import stop_requests
from unisono.supervise.stall_detector import EndCauses, StallDetector
from unisono.supervise.wait_until_frozen import FreezeRequest, wait_until_frozen

TICK_S = 0.1
HEAD_START_S = 0.05
"""Replacements are forked after the survivors have re-formed, since forking would delay that. If re-forming takes
longer than this, they are forked meanwhile: they may be ready by then, and all stand still once instead of twice."""
SILENCE_S = 1.0
"""After a request to end that takes so long, it is said that it was heard."""


@final
class Supervisor:
    """Of `size` ranks, for one run."""

    def __init__(
        self,
        words: Words,
        size: int,
        body: Body,
        config: SupervisorConfig,
        on_report: Callable[[int, Any], None],
        make_ranks: Callable[[int, Body, SupervisorConfig, Callable[[int, Any], None]], Ranks] = RankProcesses,
    ) -> None:
        self._words, self._size, self._config, self._on_report = words, size, config, on_report
        self._ranks = make_ranks(size, body, config, self._hear)
        self._requests = Requests(words)
        self._stall_detector, self._join_detector = (
            StallDetector(words, config.stall_s, config.pieces),
            StallDetector(words, config.stall_s),
        )
        self._outcome = SupervisorResult()
        self._replacements = Replacements(respawn=config.respawn)
        self._causes, self._losses = EndCauses(), FailurePolicy(config.most_deaths, config.most_crashes)
        self._stalled: set[int] = set()
        self._signals = config.signals
        self._acknowledged = False

    @property
    def pids(self) -> dict[int, int]:
        """The processes of the ranks that live."""
        return self._ranks.pids

    def run(self, position: int = 0) -> SupervisorResult:
        """From after round `position` to the end; `RankFailed` if a rank raised an exception."""
        self._view = begin(self._words, self._size, position)
        with closing(self._ranks), self.accept_stop_requests():
            for slot in range(self._size):
                with naming_shortage(f"rank {self._config.rank_of(slot)} could not be started"):
                    self._ranks.start(slot, after=0)
            while self._living and not self._outcome.lost:
                lost = self._judge(self._ranks.poll(TICK_S))
                # Once somebody has come to the end, whoever dies is not missed, and whoever comes is not needed.
                if self._outcome.results:
                    self._send_away(self._replacements.coming)
                else:
                    self._forget_replacements(lost)
                    if lost or self._replacements.ready:
                        self._reform(lost)
                    self._start_due()
                self._watch()
        if self._outcome.view is None:
            self._outcome.view = protocol.outcome(self._words, self._view, ())
        return self._outcome

    # --- ranks -------------------------------------------------------------------------------------------------------

    @property
    def _living(self) -> set[int]:
        return set(self._ranks.pids)

    def _hear(self, slot: int, message: Report) -> None:
        if isinstance(message, ReadyToJoin):
            self._replacements.get_ready(slot)
        else:
            self._on_report(slot, message)

    def _judge(self, ended: list[ChildExit]) -> dict[int, str]:
        """Takes results; those who are lost, and why."""
        lost: dict[int, str] = {}
        for one in ended:
            if one.failure is not None:
                replace(one, rank=self._config.rank_of(one.rank)).check()
            if one.answered:
                self._outcome.results[one.rank] = one.result
            else:
                self._losses.hear(one)
                lost[one.rank] = self._causes.of(one)
        return lost

    # --- membership --------------------------------------------------------------------------------------------------

    def _reform(self, lost: dict[int, str]) -> None:
        """A new view, without those who are `lost` and with those who are ready to join."""
        begun, old = time.perf_counter(), self._view
        pulses = {slot: pulse_of(self._words, slot) for slot in old.members}
        replaced: set[int] = set()

        def replace_lost() -> None:
            if not self._outcome.results:
                self._replacements.want(lost.keys() - replaced)
                replaced.update(lost)
            self._start_due()

        def staying() -> list[int] | None:
            members = self._working()
            if members and time.perf_counter() - begun > HEAD_START_S:
                replace_lost()
            # The last rank is not lost while a replacement is on its way.
            waited_for = not members and not self._outcome.results and (self._coming() or self._replacements.wanted)
            alone = waited_for and not self._ready()
            self._start_due()
            return None if alone else members

        def listen() -> bool:
            more = self._ranks.poll(0.0)
            fresh = self._judge(more)
            self._forget_replacements(fresh)  # somebody may be waiting for them alone
            lost.update(fresh)
            return bool(more)

        def end_late(late: list[int] | None) -> None:
            if late is None:
                for slot in self._coming():
                    self._end_stuck(slot, self._join_detector)
                return
            for slot in late:
                if pulses[slot] == (pulse := pulse_of(self._words, slot)):
                    self._end_stuck(slot, self._stall_detector)
                pulses[slot] = pulse  # one that writes to a slow disk cannot stand still, but shows that it lives

        members = wait_until_frozen(
            self._words, FreezeRequest(staying, listen, self._stall_detector.patience_s, end_late)
        )
        over = bool(self._outcome.results)
        if over and not members:
            return
        joined = [] if over else self._ready()
        view = protocol.outcome(self._words, old, [*members, *joined])
        self._config.restore(view)
        for slot in joined:
            self._replacements.join(slot)
        told = {slot: f"rank {self._config.rank_of(slot)} {cause}" for slot, cause in lost.items()}
        reason = self._losses.reason(told, view, self._config.name)
        heirs = NOBODY if reason else OTHERS if members else REPLACEMENT
        self._note(lost, joined, view, (heirs, time.perf_counter() - begun))
        if reason:
            self._outcome.lost, self._outcome.view, self._outcome.crashes = reason, view, self._losses.crashes
            return
        protocol.publish(self._words, view, self._size)
        self._view = view
        self._stall_detector.forget()
        if not over:
            replace_lost()

    def _working(self) -> list[int]:
        """Members that live."""
        living = self._living.difference(self._replacements.coming)
        return [slot for slot in self._view.members if slot in living]

    def _coming(self) -> list[int]:
        """Replacements that have not joined yet."""
        return [slot for slot in self._replacements.coming if slot in self._living]

    def _ready(self) -> list[int]:
        """Of those the ones that only wait to be let in."""
        return [slot for slot in self._replacements.ready if slot in self._living]

    def _start_due(self) -> None:
        """Forks the replacements whose time has come."""
        for slot in self._replacements.due():
            self._replacements.mark_started(slot)
            self._join_detector.forget()
            try:
                self._ranks.start(slot, after=self._view.number)
                self._outcome.restarts += 1
            except OSError as error:  # no memory, or no room for another process: the others go on
                self._forget_replacements({slot: f"could not be started: {error.strerror}"})

    def _forget_replacements(self, lost: dict[int, str]) -> None:
        """Takes replacements that did not live to join out of `lost`: nobody misses them."""
        for slot in [slot for slot in lost if slot in self._replacements.coming]:
            self._stalled.discard(slot)
            cause, again = lost.pop(slot), self._replacements.fail(slot, alone=not self._working())
            self._config.on_event(ReplacementFailed(self._config.rank_of(slot), cause, again))

    def _note(self, lost: dict[int, str], joined: list[int], view: View, how: tuple[str, float]) -> None:
        """how: who took over, and in how many seconds."""
        heirs, took_s = how
        reached = protocol.PHASES[view.reached]
        here = view.position, reached, len(view.members), took_s
        for slot, cause in lost.items():
            rank, worked, stalled = self._config.rank_of(slot), slot in self._view.members, slot in self._stalled
            self._stalled.discard(slot)
            self._config.on_event(RankDied(rank, cause, worked, *here, heirs, stalled))
        if heirs != NOBODY and any(slot in self._view.members for slot in lost):
            self._outcome.takeovers += 1
            self._outcome.takeover_s.append(took_s)
        for slot in joined:
            self._config.on_event(RankJoined(self._config.rank_of(slot), *here))

    # --- looking after them ------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        if self._signals:
            self._requests.ask_to_halt()
            if not self._acknowledged and time.monotonic() - min(self._signals.values()) > SILENCE_S:
                self._acknowledged = True
                self._config.on_event(StopRequested())
        self._config.tick()
        self._causes.look()
        for stall_detector, slots in ((self._stall_detector, self._working()), (self._join_detector, self._coming())):
            for slot in stall_detector.stuck(slots):
                self._end_stuck(slot, stall_detector)

    def _send_away(self, slots: Iterable[int]) -> None:
        for slot in self._living.intersection(slots) - self._causes.known.keys():
            self._causes.known[slot] = "came too late"
            self._ranks.kill(slot)

    def _end_stuck(self, slot: int, stall_detector: StallDetector) -> None:
        """Saves the stack of a rank that did not move for as long as `stall_detector` waits, and ends it, once."""
        if slot in self._causes.known:
            return  # its end takes a moment
        told = f"did not move for {stall_detector.patience_s():g} s (--stall-timeout) and was ended"
        stall_detector.accuse()
        self._stalled.add(slot)
        where = self._ranks.save_stack(slot)
        self._causes.known[slot] = told + (f" (its stack: {where})" if where else "")
        self._ranks.kill(slot)

    def accept_stop_requests(self) -> AbstractContextManager[None]:
        """A signal asks for an end at the end of a round; a second one ends at once. May outlast `run`."""
        return stop_requests(lambda: None, self._signals)
