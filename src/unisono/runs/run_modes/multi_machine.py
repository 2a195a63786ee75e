"""MultiMachineMode: this process is the supervisor of one machine of several, with an exchanger between them.

    where = MachineOptions(num_nodes=2, node_id=0, main_address="10.0.0.1", ranks_per_node=4)
    RunLifecycle(Recipe(), MultiMachineMode(where)).run()

The one idea: the supervisor of the first machine decides where all start, writes the run directory and the terminal;
the others do the same work for their ranks, and say which machine they joined and how it ended. After each step that
could fail on one machine only, all tell each other how it went, so that a mistake ends the run everywhere in the same
words.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, final

from unisono.errors import RESUME_ME, RankFailed, UserError
from unisono.launch.connect import require
from unisono.launch.exchanger_process import ExchangerProcess
from unisono.launch.machine_options import MachineOptions
from unisono.messages.events import Event
from unisono.recipe import Recipe
from unisono.report.terminal.training import event_line
from unisono.runs.early_end import Halted, stop_message
from unisono.runs.recorder import Recorder
from unisono.runs.run_modes.base import Allocation, RunMode, Value, check_nodes
from unisono.runs.snapshots.failover import FailoverPlace
from unisono.runs.supervised_training import RunPlaces, SupervisedRun
from unisono.safe_print import print
from unisono.storage.resume import SNAPSHOTS
from unisono.storage.snapshots.snapshot import Snapshot
from unisono.strategies.failure_notice import FailureNotice
from unisono.strategies.machines.machine_layout import MachineLayout, MachineName
from unisono.strategies.machines.mailbox import RemoteView
from unisono.strategies.registry import of
from unisono.supervise.signals import finish_undisturbed, ignore_requests
from unisono.training.checks import check_machine
from unisono.training.consistency import check_same_code, check_same_data, check_same_run, differences_between, facts_of
from unisono.training.job import Job, prepare
from unisono.trust import Trust


@final
class MultiMachineMode(RunMode):
    """The supervisor of one machine."""

    def __init__(self, options: MachineOptions, restarts: int | None = None) -> None:
        """restarts: how often a batch system has started the job again; None: by hand, so each machine has its
        terminal."""
        self._options, self._by_hand, self.restarts = options, restarts is None, restarts or 0

    @contextmanager
    def connect(self, recipe: Recipe) -> Iterator[Recipe]:
        options = self._options
        _check(recipe)
        recipe = recipe.with_options(ranks=options.ranks_per_node or recipe.ranks.count)
        check_machine(recipe)
        facts = facts_of(recipe) | {"ranks": recipe.ranks.count}
        if self._by_hand:
            _say(options, waiting_line(options))
        with closing(ExchangerProcess(options, facts)) as self._exchanger:
            self._facts = facts_of_all = self._exchanger.join()
            check_same_run(facts_of_all, "node")
            self._counts = [one["ranks"] for one in facts_of_all]
            self._hosts = [one["host"] for one in facts_of_all for _ in range(one["ranks"])]
            recipe = recipe.with_options(ranks=sum(self._counts))
            check_nodes(recipe, options.num_nodes)
            yield recipe

    def from_first(self, find: Callable[[], Value]) -> Value:
        value: Value = self._exchanger.share(lambda: find() if self._options.node_id == 0 else None)[0]
        return value

    def prepare(self, recipe: Recipe, trust: Trust) -> Job:
        """Nobody is asked about trust, for the others would wait for the answer."""

        def read() -> list[str]:
            """The data of this machine, and its network if that is the user's own."""
            trust.check(recipe)
            self._job = prepare(recipe)
            return [self._job.all_data_sha256, self._job.code_sha256]

        data, code = zip(*self._exchanger.share(read), strict=True)
        check_same_data(self._facts, data, "node")
        check_same_code(self._facts, code, "model", "node")
        return self._job

    def restore(self, position: int, snapshot: Snapshot | None) -> None:
        def set_up() -> None:
            job = self._job
            machine_layout = layout_of(self._counts, self._options.node_id, job.recipe)
            self._supervised_run = SupervisedRun(
                job, RunPlaces(), remote=RemoteView(machine_layout, tuple(self._hosts))
            )
            if snapshot is not None:
                self._supervised_run.resume(snapshot)
            else:
                self._supervised_run.resume_at(position)

        self._exchanger.share(set_up)

    def allocation(self) -> Allocation:
        notes = differences_between(self._facts, "node")
        return Allocation("gloo", self._hosts, machines=len(self._facts), notes=notes)

    def train(self, record: Recorder | None, failover_place: FailoverPlace) -> dict[str, Any] | None:
        options, recipe = self._options, self._job.recipe
        if record is not None:
            record.energy.unknown = (
                "with --num-nodes that of other machines is not gathered; under mpirun, torchrun and srun it is"
            )
            self._supervised_run.places = RunPlaces(record.weights, record.path / SNAPSHOTS, record.log)
        elif not self._job.spec.state_in_parts(options.num_nodes):
            self._supervised_run.places = RunPlaces(failover_place=failover_place)
        told = self._by_hand and record is None
        if told:
            first = MachineName(0, self._facts[0]["host"], self._facts[0]["address"])
            here = f"{self._counts[options.node_id]} of {recipe.ranks.count}"
            _say(options, f"joined {first}, which tells of the run; ranks here: {here}")
        found = _train(self._supervised_run, self._exchanger, record, options)
        if told:
            _say(options, f"the run has ended; node 0 has it in {failover_place.path}")
        return found


def layout_of(counts: list[int], node: int, recipe: Recipe) -> MachineLayout:
    """So many ranks on each machine, numbered through."""
    colours = [number for number, count in enumerate(counts) for _ in range(count)]
    return MachineLayout.of(colours, colours.index(node), recipe.ranks.shards, rounded=recipe.strategy.wire != "fp32")


def _check(recipe: Recipe) -> None:
    if not of(recipe).supports.machines_by_hand:
        raise UserError(
            f"--num-nodes with {of(recipe).chosen_by(recipe)}: supervisors on several machines train with sync or "
            "local, on the arena",
            hint="leave it out, or start the ranks with torchrun or mpirun",
        )
    if recipe.strategy.transport not in ("auto", "gloo"):
        raise UserError(
            f"--num-nodes with --transport {recipe.strategy.transport}: supervisors talk over gloo",
            hint="leave --transport out, or start with mpirun for MPI",
        )
    require("gloo")


def _train(
    supervised_run: SupervisedRun, exchanger: ExchangerProcess, record: Recorder | None, options: MachineOptions
) -> dict[str, Any] | None:
    report: Callable[[int, Any], None] = (lambda rank, value: None) if record is None else (lambda _, v: record.add(v))
    event = _say_event if record is None else record.add_event
    supervised_run.on_finished = finish_undisturbed
    try:
        tick = (lambda pids: None) if record is None else record.energy.tick
        outcome = supervised_run.train(report, event, exchanger, tick)
    except Halted as halted:
        ignore_requests()
        if halted.outcome.lost:
            exchanger.announce_failure(FailureNotice(halted.outcome.lost, RESUME_ME, halted.outcome.crashes))
        if record is None:
            told = str(halted) if halted.snapshot or halted.trouble else stop_message(halted.outcome)
            _say(options, told)
            halted.shown = True
        raise
    except RankFailed as error:
        exchanger.announce_failure(FailureNotice(str(error), error.exit_code))
        raise
    except Exception as error:
        exchanger.announce_failure(FailureNotice.of(error, "its supervisor"))
        raise
    if record is None:
        return None
    found: dict[str, Any] = next(result for result in outcome.results.values() if result)
    return found | {"takeovers": outcome.takeovers, "restarts": outcome.restarts}


def waiting_line(options: MachineOptions) -> str:
    """What this machine is doing until all have come."""
    others = "node 1" if options.num_nodes == 2 else f"nodes 1 to {options.num_nodes - 1}"
    whom = f"node 0 at {options.main_address}" if options.node_id else f"{others} at {options.main_address}"
    return f"waiting for {whom}, port {options.main_port}, for up to {options.join_timeout:g} s (--join-timeout)"


def _say(options: MachineOptions, text: str) -> None:
    print(f"unisono: node {options.node_id}: {text}", file=sys.stderr, flush=True)


def _say_event(event: Event) -> None:
    if told := event_line(event):
        print(told, file=sys.stderr, flush=True)
