"""A supervised training run in one process: the real supervisor, members, strategy and loop, as actors of a scheduler.

The one idea: nothing of unisono is retold here. Ranks live as under `runs/supervised_training.py` (`Member`,
`SyncArena`, `run_rounds`), and `Supervisor` decides about them; only forking, pipes and waiting are replaced. The
network is tiny, and its gradients depend on samples *and* parameters: a contribution that is lost, doubled or stale
shows in the numbers.

    setting = Setting(ranks=3); found = setting.run({37: KILL, 52: 1}); found.fault, setting.told(found)

What a run leaves (parameters, optimizer state, buffers, records, spare copies) must equal what one rank alone leaves.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, final
from unittest.mock import patch

import numpy as np

from support.arena.actor_ranks import ActorRanks
from support.arena.paused_memory import PausedMemory
from support.arena.scheduler import HALT, KILL, Action, Actor, Point, Scheduler
from support.arena.tiny_job import Tiny, tiny_job
from unisono.arena.membership import protocol
from unisono.arena.membership.halt_and_snapshot_requests import Requests
from unisono.arena.membership.member import Member
from unisono.messages.rank_reports import EpochRecord, ReadyToJoin, SnapshotReady, StoppedAt
from unisono.optim.options import OptimizerOptions
from unisono.strategies.arena.state import ArenaState, plan_sections
from unisono.strategies.machines.machine_layout import MachineLayout
from unisono.strategies.machines.mailbox import ONE_MACHINE, RemoteView
from unisono.supervise.config import Body, SupervisorConfig
from unisono.supervise.supervisor import Supervisor
from unisono.training.trainer import run_rounds


@final
@dataclass
class Found:
    """How a run went."""

    fault: str
    taken: dict[int, Action]
    """Its interventions: with them it can be made again."""
    points: list[Point] = field(repr=False)
    halted: int | None = None
    """The round after which it ended, if it was asked to."""


@final
class Setting:
    """What is run: the same memory for every run. `optimizer`: with a clip ranks also meet at NORMS."""

    def __init__(
        self,
        ranks: int,
        optimizer: str = "adam",
        clip: float | None = None,
        snapshots: str = "",
        machine_layout: MachineLayout | None = None,
        *,
        early: bool = False,
    ) -> None:
        """seating: where there are several machines; then `ranks` is the number of those of this one. early: as if all
        took long, so replacements are forked while the others come to rest, and shards are computed one by one."""
        self.ranks, self.machine_layout, self.early = ranks, machine_layout, early
        options = OptimizerOptions(optimizer, lr=0.1, clip=clip)
        self.job = tiny_job(ranks, options, snapshots)
        model = Tiny()
        extent = replace(self.job.extent(undo=True, spare=bool(snapshots)), machine_layout=machine_layout)
        self._sections = plan_sections(model, options, extent)
        self.memory = PausedMemory(self._sections.nbytes)
        self.shared = self.attach()
        self.remote = (
            ONE_MACHINE if machine_layout is None else RemoteView(machine_layout, ("here",) * machine_layout.size)
        )
        model.init(self.shared.params[: model.layout.length], self.shared.buffers, np.random.default_rng(7))
        self._fresh = self.memory.take()
        self.states: dict[int, list[bytes]] = {}
        """What each round leaves, by one rank that nobody disturbs; and what it told and returned."""
        self.expected: tuple[Any, Any] = ({}, {})
        self.start_exchanger: Callable[[Scheduler], None] = lambda scheduler: None
        """Starts the actor that exchanges with other machines, if there are any."""
        if machine_layout is None:
            with replaced():
                self.walk_alone()

    def attach(self) -> ArenaState:
        """One process's hold on the memory."""
        others = None if self.machine_layout is None else (self.machine_layout, Tiny.layout.length)
        memory: Any = self.memory
        shared = ArenaState(memory, self._sections, self.ranks, others)
        if shared.mailbox is not None:
            shared.mailbox._words = memory.paused(shared.mailbox._words)
        return shared

    def walk_alone(self) -> None:
        """What a run with one rank, which nobody disturbs, leaves and tells."""
        shared, told = self.shared, []
        self.reset()
        protocol.first_view(shared.words, [0], self.ranks)
        position = -1  # the loop begins after round 0

        def tick() -> None:
            nonlocal position
            position += 1
            self.states[position] = _state(shared)

        member, model = Member(shared.words, 0, self.ranks, crowded=True), Tiny()
        hooks = self.job.spec.supervise(self.job, model, shared)
        strategy = hooks.strategy(member, model, lambda position: None, self.remote, told.append)
        result = run_rounds(strategy, model, self.job, told.append, None, tick)
        self.states[position + 1] = _state(shared)
        self.expected = [_record(value) for value in told], _record(result)

    def run(self, schedule: Mapping[int, Action]) -> Found:
        """One run with these interventions."""
        return self.decided(lambda number, scheduler: schedule.get(number))

    def decided(self, decide: Callable[[int, Scheduler], Action]) -> Found:
        """One run in which `decide` is asked at every point."""
        run = _Run(self, decide)
        fault = run.make()
        return Found(fault, run.scheduler.taken, run.scheduler.points, run.halted)

    def reset(self) -> None:
        self.memory.put_back(self._fresh)

    def told(self, found: Found) -> str:
        """A run, point by point: the last ones, and those around its interventions."""
        names, effects = word_names(self.ranks), {None: "", KILL: "   <- is killed here", HALT: "   <- a signal comes"}
        near = {at + more for at in found.taken for more in range(-3, 4)}
        lines = [f"schedule {found.taken}, {self.ranks} ranks, {self.job.optimizer.name}"]
        for number, point in enumerate(found.points):
            if number in near or number > len(found.points) - 12:
                effect = effects.get(found.taken.get(number), "   <- another goes on")
                lines.append(f"{number:5} {point.actor} {point.what} {names.get(point.at, '')}{effect}")
        return "\n".join([*lines, f"FAULT: {found.fault}"])


@final
class _Run:
    """One run of a setting."""

    def __init__(self, setting: Setting, decide: Callable[[int, Scheduler], Action]) -> None:
        self._setting, self._shared = setting, setting.shared
        self.scheduler = Scheduler(decide, self._bury, self._ask)
        self._told: list[tuple[int, Any]] = []
        self._signals: dict[int, float] = {}
        self._ranks: ActorRanks | None = None
        self._faults: list[str] = []
        self.halted: int | None = None

    def make(self) -> str:
        setting, scheduler = self._setting, self.scheduler
        setting.reset()
        config = SupervisorConfig(restore=self._shared.restore, signals=self._signals)
        outcome: list[Any] = []

        def watch() -> None:
            supervisor = Supervisor(self._shared.words, setting.ranks, self._live, config, self._hear, self._make_ranks)
            outcome.append(supervisor.run())

        with replaced(scheduler.wait_until, early=setting.early):
            setting.memory.scheduler = scheduler
            try:
                scheduler.start("the supervisor", watch)
                setting.start_exchanger(scheduler)
                fault = scheduler.run()
            finally:
                setting.memory.scheduler, memory = None, setting.memory.take()
                scheduler.close()
                setting.memory.put_back(memory)
        return fault or self._judge(outcome[0])

    def _make_ranks(
        self, size: int, body: Body, config: SupervisorConfig, on_report: Callable[[int, Any], None]
    ) -> ActorRanks:
        self._ranks = ActorRanks(self.scheduler, body, on_report)
        return self._ranks

    def _live(self, slot: int, after: int, report: Callable[[Any], None]) -> Any:
        """As `SupervisedRun._live`."""
        setting, model, shared = self._setting, Tiny(), self._setting.attach()
        if after:
            report(ReadyToJoin())
        member = Member(shared.words, slot, setting.ranks, crowded=True, after=after)

        def on_snapshot_copy(position: int) -> None:
            report(SnapshotReady(position))

        hooks = setting.job.spec.supervise(setting.job, model, shared)
        strategy = hooks.strategy(member, model, on_snapshot_copy, setting.remote, report)
        return run_rounds(strategy, model, setting.job, report, None)

    def _hear(self, slot: int, value: Any) -> None:
        if not isinstance(value, SnapshotReady):
            self._told.append((slot, value))
            return
        spare, position = self._shared.spare, value.position
        assert spare is not None
        if [array.tobytes() for array in spare.arrays] != self._setting.states[position]:
            self._faults.append(f"the spare copy of round {position} is not what that round left")
        Requests(self._shared.words).snapshot_written()

    def _bury(self, actor: Actor) -> None:
        if self._ranks is not None:
            self._ranks.bury(actor)

    def _ask(self) -> None:
        self._signals.setdefault(15, time.monotonic())
        if self._ranks is not None:
            self._ranks.tell(-1, "signal", None)

    def _judge(self, outcome: Any) -> str:
        setting = self._setting
        told, result = setting.expected
        if self._faults:
            return self._faults[0]
        if outcome.lost:
            view = outcome.view
            if view.members or outcome.results or "no rank is left" not in outcome.lost:
                return f"the run was given up: {outcome.lost}"
            # Nobody was there when it was decided: what was reached is saved, and whoever resumes tells records again.
            done = view.position - (view.reached != protocol.COMMIT)
            wrong = _difference(setting.states[done], _state(self._shared), but=("steps", "scores"))
            return f"given up after round {done}, and the {wrong} are not those of a quiet run" if wrong else ""
        halts = {found.position if isinstance(found, StoppedAt) else None for found in outcome.results.values()}
        if len(halts) > 1:
            return f"ranks ended after different rounds: {outcome.results}"
        (halted,) = halts
        self.halted = halted
        position = max(setting.states) if halted is None else halted
        if wrong := _difference(setting.states[position], _state(self._shared)):
            return f"after round {position} the {wrong} are not those of a quiet run"
        records = [_record(value) for _, value in self._told]
        if halted is None and any(_record(found) != result for found in outcome.results.values()):
            return f"ranks returned {outcome.results}\ninstead of {result}"
        if any(record not in told for record in records) or (halted is None and not records):
            return f"ranks told {records}\ninstead of {told}"
        return ""


_NAMES = ("buffers", "steps", "scores", "missed")


def _state(shared: ArenaState) -> list[bytes]:
    return [array.tobytes() for array in shared.lasting.arrays]


def _difference(expected: list[bytes], found: list[bytes], but: Sequence[str] = ()) -> str:
    names = [*(f"vector {number}" for number in range(len(expected) - len(_NAMES))), *_NAMES]
    pairs = zip(names, expected, found, strict=True)
    return ", ".join(name for name, one, other in pairs if one != other and name not in but)


def _record(value: EpochRecord | dict[str, Any]) -> dict[str, Any]:
    """What does not depend on time, or on who was there."""
    kept = value.metrics if isinstance(value, EpochRecord) else value
    skipped = ("_s", "_per_s", "_bytes")
    return {name: kept[name] for name in kept if not name.endswith(skipped) and name != "shard_price"}


@contextmanager
def replaced(wait: Callable[..., bool] | None = None, *, early: bool = False) -> Iterator[None]:
    """Real waiting is the scheduler's, nothing is measured that takes time, and Ctrl-C is not the supervisor's."""
    with ExitStack() as kept:
        kept.enter_context(patch("unisono.training.epoch_end.pss_bytes", lambda: 0))
        kept.enter_context(patch("unisono.training.epoch_end.shard_overhead", lambda *given: 1.0))
        kept.enter_context(patch("unisono.training.trainer.PROGRESS_S", 1e9))
        kept.enter_context(patch("unisono.supervise.stall_detector.memory_kills", lambda: 0))
        kept.enter_context(patch("unisono.supervise.failure_policy.FIRST_PAUSE_S", 0.0))
        # No clock decides: replacements are forked at once or afterwards, shards computed one by one or together.
        kept.enter_context(patch("unisono.supervise.supervisor.HEAD_START_S", -1.0 if early else inf))
        kept.enter_context(patch("unisono.strategies.arena.gradients.LONG_S", -1.0 if early else inf))
        kept.enter_context(patch("unisono.supervise.supervisor.stop_requests", lambda *given: nullcontext()))
        kept.enter_context(patch.object(Member, "pulsing", lambda self: nullcontext()))
        kept.enter_context(patch("unisono.launch.exchanger_process.readable", lambda fd, timeout_s: False))
        if wait is not None:
            for module in (
                "unisono.arena.membership.member",
                "unisono.supervise.wait_until_frozen",
                "unisono.launch.exchanger_process",
            ):
                kept.enter_context(patch(f"{module}.wait_until", wait))
        yield


def word_names(size: int) -> dict[int, str]:
    """For traces."""
    names = {0: "the view's number", 1: "the freeze", **{protocol.REQUESTS + at: f"request {at}" for at in range(6)}}
    for slot in range(size):
        start = protocol.line(slot)
        names |= {start: f"the flag of rank {slot}", start + 1: f"whether rank {slot} stands still"}
        names |= {start + protocol.MARKS + at: f"mark {at} of rank {slot}" for at in range(6)}
    rows = protocol.line(size)
    return names | {at: f"the row of a view, {at - rows}" for at in range(rows, protocol.words_needed(size))}
