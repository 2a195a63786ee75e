"""SupervisedRun: training on this machine under a supervisor. What one rank loses, the others have.

The one idea: this process makes the arena, puts the starting values into it (of the recipe's seed, or of a snapshot),
and forks ranks that only ever work on it. So whatever happens to them, everything that was reached is here.

    outcome = SupervisedRun(job, RunPlaces(weights=path, snapshots=folder)).train(on_report, on_event)

Several machines have a supervised run each, with an exchanger between them (`launch/exchanger_process.py`); who dies
is taken over there.

Limits: ranks are forked, so torch must not have started threads in this process.
"""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from threadpoolctl import threadpool_limits

from unisono.arena.arena import Arena
from unisono.errors import Diverged, NodeLost, UnisonoError, UserError
from unisono.launch.exchanger_process import ExchangerProcess
from unisono.launch.local import torch_threads_running
from unisono.messages.events import Event
from unisono.messages.rank_reports import ReadyToJoin, Report, SendReport, SnapshotReady, StoppedAt
from unisono.rng import generator
from unisono.runs.early_end import Halted
from unisono.runs.snapshots.failover import FailoverPlace, save_failover
from unisono.runs.snapshots.saver import Saver, check_snapshot, last_done, restore_arrays
from unisono.storage.background_writer import ProcessWriter
from unisono.storage.snapshots.snapshot import Snapshot
from unisono.strategies.arena.state import plan_shared
from unisono.strategies.machines.mailbox import ONE_MACHINE, RemoteView
from unisono.strategies.spec import SupervisedSpec
from unisono.supervise.config import SupervisorConfig, SupervisorResult
from unisono.supervise.supervisor import Supervisor
from unisono.training.core_spreading import CoreAffinity
from unisono.training.job import Job
from unisono.training.round_schedule import RoundSchedule
from unisono.training.trainer import run_rounds
from unisono.user_code.source_files import file_in

LEAST_CRASHES = 5
"""A round that ended so many ranks, and more than there are at a time, will not be tried again."""
_IN_PARTS = "nothing was saved: of --strategy local on several nodes, each has the states of its own replicas only"


@final
@dataclass(frozen=True)
class RunPlaces:
    """Where a run leaves things; None: nowhere."""

    weights: Path | None = None
    snapshots: Path | None = None
    log: Path | None = None
    failover_place: FailoverPlace | None = None
    """Where a machine that is not the first one saves what was reached if that one is lost."""


@final
class SupervisedRun:
    """The ranks of one run."""

    def __init__(self, job: Job, places: RunPlaces, *, undo: bool = True, remote: RemoteView = ONE_MACHINE) -> None:
        """undo: False saves its cost and its memory, and gives take-over up; for measuring what it costs."""
        self._job, self.places, self._undo, self._remote = job, places, undo, remote
        self._model = model = job.model()
        machine_layout = remote.machine_layout
        self._size = job.recipe.ranks.count if machine_layout is None else len(machine_layout.ranks)
        # Snapshots are the first machine's affair.
        spare = bool(job.snapshots) and (machine_layout is None or machine_layout.node == 0)
        extent = replace(job.extent(undo=undo, spare=spare), size=self._size, machine_layout=machine_layout)
        self._arena = Arena.create(plan_shared(model, job.shared_optimizer, extent))
        self._shared = self._arena.state
        if machine_layout is None:
            self._arena.close()  # ranks inherit the memory, and nobody else attaches
        assert isinstance(job.spec, SupervisedSpec), "run modes supervise no other strategies"
        self._hooks = job.spec.supervise(job, model, self._shared)
        model.init(
            self._shared.params[: model.layout.length],
            self._shared.buffers,
            generator(job.recipe.learning.seed, "init"),
        )
        self._position = 0
        self.on_finished: Callable[[], None] = lambda: None
        """Called when the last round is done, before what is left is written."""
        self.signals: dict[int, float] = {}
        """When the first signal of each kind that asks for an end came."""

    def resume_at(self, position: int) -> None:
        """The first machine resumes from a snapshot of that round: this one will be told what it holds."""
        self._position = position

    def resume(self, snapshot: Snapshot) -> None:
        """Starts from a snapshot instead of the recipe's starting values."""
        check_snapshot(self._job, snapshot)
        restore_arrays(self._model, self._job.optimizer, self._shared.lasting_at(snapshot.position), snapshot)
        self._position = snapshot.position
        self._hooks.resume(*self._schedule.where(self._position))

    def train(
        self,
        on_report: Callable[[int, Report], None],
        on_event: Callable[[Event], None] = lambda event: None,
        exchanger: ExchangerProcess | None = None,
        on_tick: Callable[[Mapping[int, int]], None] = lambda pids: None,
    ) -> SupervisorResult:
        """To the end. `Halted` if it came before its time; `RankFailed` if a rank raised an exception;
        whatever the `exchanger` tells of that is not a loss.

        on_tick(pids) is called about ten times a second, with the process of each rank.
        """
        if self._job.recipe.model.engine == "torch" and torch_threads_running():
            raise UserError(
                "torch has started threads in this process: a forked rank that uses torch would hang",
                hint="train before anything is computed with torch here, or call torch.set_num_threads(1) before that; "
                "or use the command `unisono train`, a process of its own",
            )
        recipe, job = self._job.recipe, self._job
        if exchanger is not None:
            self._attach(exchanger)
        saver = Saver(job, self._model, self._shared, self.places.snapshots, on_event, ProcessWriter())

        def hear(slot: int, report: Report) -> None:
            if isinstance(report, SnapshotReady):
                saver.save_copy(report.position)
            else:
                on_report(slot, report)

        def tick() -> None:
            saver.tick()
            on_tick(supervisor.pids)
            if exchanger is not None:
                exchanger.tick()

        config = SupervisorConfig(
            respawn=recipe.faults.respawn,
            most_deaths=recipe.faults.max_restarts,
            most_crashes=max(LEAST_CRASHES, recipe.ranks.count + 1) if self._hooks.crashes_counted else 0,
            name=self._name,
            rank_of=self._remote.rank_of,
            stall_s=recipe.faults.stall_timeout,
            pieces=self._hooks.pieces,
            stacks=self.places.log,
            restore=self._hooks.restore,
            on_event=on_event,
            tick=tick,
            signals=self.signals,
        )
        supervisor = Supervisor(self._shared.words, self._size, self._live, config, hear)
        # Set here and inherited: a rank that sets threads of BLAS wakes them, and they spin for as long as many steps.
        with (
            threadpool_limits(recipe.ranks.threads, user_api="blas"),
            supervisor.accept_stop_requests(),
            saver,
            self._hooks.running(),
        ):
            outcome = supervisor.run(self._position)
            halted = any(isinstance(found, StoppedAt) for found in outcome.results.values())
            if exchanger is not None and halted:
                outcome.lost, outcome.crashes = exchanger.why(), exchanger.crashes
                outcome.lost_nodes = exchanger.lost_nodes if exchanger.certain else ()
            if outcome.lost or halted:
                # As the supervisor sees it: a rank that joined in the middle knows nothing of the rounds before.
                assert outcome.view is not None
                reached = last_done(job, self._shared.scores, outcome.view)
                position = self._hooks.whole(reached, *self._schedule.where(reached))
                if not self._whole_here:
                    raise Halted(outcome, "", _IN_PARTS)
                try:
                    if exchanger is not None and exchanger.first_lost and self.places.failover_place is not None:
                        snapshot = save_failover(saver, self.places.failover_place, position)
                    else:
                        snapshot = saver.save_last(position)
                except UnisonoError as error:
                    raise Halted(outcome, "", str(error)) from None
                raise Halted(outcome, snapshot)
            self.on_finished()
            if self._whole_here:
                saver.save_end(self._shared.scores)
        return outcome

    def _live(self, slot: int, after: int, report: SendReport) -> Any:
        """The life of a rank."""
        job = self._job
        rank = self._remote.rank_of(slot)
        # What a module of the user's has opened or started (a file's offset, a pool's threads) is no copy after a fork.
        model = job.model_of(rank) if file_in(job.recipe.model.name) else job.slowed(self._model, rank)
        if after:
            report(ReadyToJoin())
        member = self._arena.member(slot, after=after)

        def on_snapshot_copy(position: int) -> None:
            report(SnapshotReady(position))

        strategy = self._hooks.strategy(member, model, on_snapshot_copy, self._remote, report)
        try:
            return run_rounds(strategy, model, job, report, self.places.weights, CoreAffinity(member))
        except (NodeLost, Diverged):
            return StoppedAt()  # as if asked to: everybody else stands where this rank does

    def _attach(self, exchanger: ExchangerProcess) -> None:
        """The other machines are told from here on; what the first one put back is copied to all."""
        mailbox, machine_layout = self._shared.mailbox, self._remote.machine_layout
        assert mailbox is not None
        assert machine_layout is not None
        plan = {
            "groups": machine_layout.groups, "node": machine_layout.node,
            "shards": machine_layout.shards, "rounded": machine_layout.rounded,
            "sections": self._arena.plan.sections.pack(), "used": mailbox.used, "position": self._position,
            "wire": self._job.recipe.strategy.wire,
        }  # fmt: skip
        with closing(self._arena):
            exchanger.attach(plan, self._arena.fd, mailbox)

    @property
    def _whole_here(self) -> bool:
        """Whether this machine has all that a snapshot needs; see `Strategy.snapshot_source`."""
        machine_layout = self._remote.machine_layout
        return not self._job.spec.state_in_parts(1 if machine_layout is None else machine_layout.count)

    def _name(self, position: int) -> str:
        """A round, in words."""
        schedule = self._schedule
        epoch, step = schedule.where(position)
        if position == schedule.final:
            return "the end of the run"
        return f"step {step + 1} of epoch {epoch}" if step < schedule.steps else f"the evaluation after epoch {epoch}"

    @property
    def _schedule(self) -> RoundSchedule:
        return RoundSchedule(self._job.plan.steps_per_epoch, self._job.recipe.learning.epochs)
