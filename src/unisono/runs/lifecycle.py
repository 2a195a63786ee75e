"""RunLifecycle: a run from its recipe to its verdict, in the same steps wherever its ranks come from.

    RunLifecycle(Recipe.from_options(ranks=4), SupervisedMode()).run()  # agree, resume, prepare, record, train, finish
    run_recipe(Recipe.from_options(ranks=4))          # the same, in the mode that this process has
    recipe, mode = choose_run_mode(Recipe.from_options(ranks=4), MachineOptions(), confirm=Trust.check)

The one idea: one process of a run, the first, writes the run directory and the terminal; the others are silent. It also
finds where the run starts (`find_start`: the beginning or a snapshot), as plain values, and the others receive them.
All else that depends on who started the ranks is in the `RunMode` (`run_modes/`).
"""

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any, final

from unisono.comm.topology.rendezvous import RendezvousOptions
from unisono.environment.os_environ import detect
from unisono.errors import RankFailed, UserError
from unisono.launch.machine_options import MachineOptions
from unisono.launch.secret import find_secret
from unisono.launch.slurm.step_facts import as_supervisor, step_facts
from unisono.recipe import Recipe, flag
from unisono.runs.early_end import user_error_of
from unisono.runs.live_page import live_page
from unisono.runs.recorder import Recorder
from unisono.runs.run_modes.base import RunMode
from unisono.runs.run_modes.launched import LaunchedMode
from unisono.runs.run_modes.multi_machine import MultiMachineMode
from unisono.runs.run_modes.supervised import SupervisedMode
from unisono.runs.snapshots.failover import FailoverPlace
from unisono.safe_print import print
from unisono.storage.path_resolution import FILES
from unisono.storage.resume import after_restart, as_saved, find_snapshot
from unisono.storage.rundir import RunDirectory
from unisono.storage.snapshots.snapshot import Snapshot
from unisono.supervise.signals import restore_handlers
from unisono.training.bits_and_speed_trials import precision_notes
from unisono.training.job import Job
from unisono.trust import ANY, Trust

ONE_NODE = MachineOptions()


@final
class RunLifecycle:
    """A run as one of its processes sees it: `run` goes through the steps once, in order, and leaves `path` and
    `summary`. Every process of the run has one, with a `RunMode` that says what this process is."""

    def __init__(
        self,
        recipe: Recipe,
        mode: RunMode,
        *,
        trust: Trust = ANY,
        pages: ExitStack | None = None,
        quiet: bool = False,
    ) -> None:
        """trust: which of the recipe's code may run. pages: where a live page is entered, to be left after the run
        directory is complete; None: there is none. quiet: only warnings are shown."""
        self._recipe, self._mode, self._trust, self._pages, self._quiet = recipe, mode, trust, pages, quiet
        self._record: Recorder | None = None
        self.path: Path | None = None
        """The run directory, once it is known."""
        self.summary: dict[str, Any] | None = None
        """The results of a finished run, in the first process; None elsewhere, and if nothing was left to do."""

    def run(self) -> None:
        """The whole run."""
        mode = self._mode
        with mode.connect(self._recipe) as recipe:
            snapshots: list[Snapshot] = []
            start = mode.from_first(lambda: find_start(recipe, mode.restarts, snapshots, self._say))
            if not start:
                self.path = Path(recipe.output.directory)
                return
            job = mode.prepare(recipe.with_options(**start["changed"]), self._trust)
            snapshot = snapshots[0] if snapshots else None
            mode.restore(start["position"], snapshot)  # before anything in the run directory is touched
            try:
                self._record_and_train(job, snapshot, anew=start["anew"])
            except RankFailed as error:
                if self._record is None:
                    raise user_error_of(error) from None
                raise user_error_of(error, self._record.path, self._record.resume_command) from None

    def _record_and_train(self, job: Job, snapshot: Snapshot | None, *, anew: bool) -> None:
        mode, place = self._mode, self._mode.allocation()
        with ExitStack() as opened:

            def open_record() -> list[str]:
                record = Recorder(
                    job, place.transport, place.hosts, snapshot, place.devices, anew=anew, quiet=self._quiet
                )
                self._record = opened.enter_context(record)
                return [str(record.path.resolve()), record.token]

            failover_place = FailoverPlace(*mode.from_first(open_record))
            self.path = Path(failover_place.path) if self._record is None else self._record.path
            if self._record is not None:
                if self._pages is not None:
                    self._pages.enter_context(live_page(self._record.path))
                notes = [*job.notes, *precision_notes(job), *job.spec.notes(job.recipe, place.machines)]
                self._record.say([*notes, *place.notes])
            found = mode.train(self._record, failover_place)
            if self._record is not None:
                assert found is not None
                self.summary = self._record.finish(found)

    def _say(self, text: str) -> None:
        if not self._quiet:
            print(text, flush=True)


def run_lifecycle(
    recipe: Recipe,
    options: MachineOptions = ONE_NODE,
    asked_ranks: int = 0,
    *,
    watch: bool = False,
    last: bool = False,
    trust: Trust = ANY,
    confirm: Callable[[Trust, Recipe], object] = Trust.check,
    quiet: bool = False,
) -> RunLifecycle:
    """Runs a recipe from start to verdict, in the mode that `choose_run_mode` finds; the lifecycle, which is over.

    watch: with a live page. last: this process ends with the run, so signals that come too late stay ignored. trust,
    confirm: which of its code may run, and how that is checked; it may ask. quiet: only warnings are shown.
    """
    # The pages are left after the run directory is complete.
    with nullcontext() if last else restore_handlers(), ExitStack() as pages:
        recipe, mode = choose_run_mode(recipe, options, asked_ranks, confirm)
        lifecycle = RunLifecycle(recipe, mode, trust=trust, pages=pages if watch else None, quiet=quiet)
        lifecycle.run()
    return lifecycle


def run_recipe(recipe: Recipe, options: MachineOptions = ONE_NODE) -> dict[str, Any] | None:
    """The same with defaults; the summary, in the process that writes it."""
    return run_lifecycle(recipe, options).summary


def choose_run_mode(
    recipe: Recipe,
    options: MachineOptions,
    asked_ranks: int = 0,
    confirm: Callable[[Trust, Recipe], object] = Trust.check,
) -> tuple[Recipe, RunMode]:
    """The run mode, and the recipe with the ranks that it has.

    Alone, this process starts the ranks. Started by mpirun, torchrun or srun, it is one of them. With `options` of
    several machines it is the supervisor of one of them. asked_ranks: what the user gave on the command line. confirm:
    as in `SupervisedMode`.
    """
    placement = detect()
    here = as_supervisor(options, placement, step_facts(), recipe.ranks.threads)
    if here is not None and here.several:
        return recipe, MultiMachineMode(here, placement.restarts)
    if options.several:
        if placement.source != "alone":
            raise UserError(
                f"--num-nodes {options.num_nodes}, but {placement.source} started this as one of {placement.size}",
                hint=f"leave --num-nodes, --node-id and --main-address out: {placement.source} says who is where",
            )
        return recipe, MultiMachineMode(options)
    if placement.size == 1:
        recipe = recipe.with_options(ranks=options.ranks_per_node or recipe.ranks.count)
        return recipe, SupervisedMode(placement.restarts, confirm)
    note = f"Note: --ranks {asked_ranks} has no effect: {placement.source} started {placement.size} ranks."
    notes = [note] if asked_ranks not in (0, placement.size) else []
    secret = find_secret(options.secret_file) if options.secret_file else None
    join = RendezvousOptions(interface=options.interface, timeout_s=options.join_timeout, secret=secret)
    return recipe, LaunchedMode(placement, join, notes)


def find_start(
    recipe: Recipe, restarts: int, found: list[Snapshot], say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Where all processes start: the options that change, the position, and whether it is from the beginning in the
    run's old directory. Empty: there is nothing left to do. found: where the snapshot is put, if there is one."""
    again = after_restart(recipe, restarts)
    if again.message:
        say(again.message)
    if again.finished:
        return {}
    if again.recipe.faults.resume:  # the snapshots of a run that is going on come and go while one looks at them
        RunDirectory.check_unused(Path(again.recipe.faults.resume))
    snapshot = find_snapshot(again.recipe)
    found.extend([snapshot] if snapshot else [])
    saved = as_saved(again.recipe, snapshot)
    for name in FILES:
        given, taken = again.recipe.option(name), saved.option(name)
        if taken != given:
            say(f"{flag(name)} {given} is not here: taken from {taken}")
    changed = {name: saved.option(name) for name in ("resume", "out", "allow_change", "shards", "engine", *FILES)}
    return {"changed": changed, "anew": again.anew, "position": snapshot.position if snapshot else 0}
