"""Course: a run from its recipe to its verdict, the same wherever its ranks come from.

    Course(Recipe.from_options(ranks=4), SupervisedHost()).run()  # agree, resume, prepare, record, train, finish
    run_recipe(Recipe.from_options(ranks=4))          # the same, with the host that this process is

The one idea: one process of a run, the first, writes the run directory and the terminal; the others are silent. What
else depends on who started the ranks is the `Host`'s affair (`hosts/`).
"""

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any, final

from unisono.errors import RankFailed
from unisono.launch.machine_options import MachineOptions
from unisono.recipe import Recipe
from unisono.runs.failures import user_error_of
from unisono.runs.host_choice import choose_host
from unisono.runs.hosts.base import Host
from unisono.runs.live_page import live_page
from unisono.runs.recorder import Recorder
from unisono.runs.snapshots.failover import FailoverPlace
from unisono.runs.start import find_start
from unisono.storage.snapshots.snapshot import Snapshot
from unisono.supervise.signals import restore_handlers
from unisono.terminal import print
from unisono.training.job import Job
from unisono.training.precision_trial import precision_notes
from unisono.trust import ANY, Trust

ONE_NODE = MachineOptions()


@final
class Course:
    """One run, in one of its processes."""

    def __init__(
        self,
        recipe: Recipe,
        host: Host,
        *,
        trust: Trust = ANY,
        pages: ExitStack | None = None,
        quiet: bool = False,
    ) -> None:
        """trust: which of the recipe's code may run. pages: where a live page is entered, to be left after the run
        directory is complete; None: there is none. quiet: only warnings are shown."""
        self._recipe, self._host, self._trust, self._pages, self._quiet = recipe, host, trust, pages, quiet
        self._record: Recorder | None = None
        self.path: Path | None = None
        """The run directory, once it is known."""
        self.summary: dict[str, Any] | None = None
        """Of a run that has finished, in the first process; None elsewhere, and if there was nothing left to do."""

    def run(self) -> None:
        """The whole run."""
        host = self._host
        with host.connect(self._recipe) as recipe:
            snapshots: list[Snapshot] = []
            start = host.from_first(lambda: find_start(recipe, host.restarts, snapshots, self._say))
            if not start:
                self.path = Path(recipe.output.directory)
                return
            job = host.prepare(recipe.with_options(**start["changed"]), self._trust)
            snapshot = snapshots[0] if snapshots else None
            host.restore(start["position"], snapshot)  # before anything in the run directory is touched
            try:
                self._record_and_train(job, snapshot, anew=start["anew"])
            except RankFailed as error:
                if self._record is None:
                    raise user_error_of(error) from None
                raise user_error_of(error, self._record.path, self._record.resume_command) from None

    def _record_and_train(self, job: Job, snapshot: Snapshot | None, *, anew: bool) -> None:
        host, place = self._host, self._host.allocation()
        with ExitStack() as opened:

            def open_record() -> list[str]:
                record = Recorder(
                    job, place.transport, place.hosts, snapshot, place.devices, anew=anew, quiet=self._quiet
                )
                self._record = opened.enter_context(record)
                return [str(record.path.resolve()), record.token]

            failover_place = FailoverPlace(*host.from_first(open_record))
            self.path = Path(failover_place.path) if self._record is None else self._record.path
            if self._record is not None:
                if self._pages is not None:
                    self._pages.enter_context(live_page(self._record.path))
                notes = [*job.notes, *precision_notes(job), *job.spec.notes(job.recipe, place.machines)]
                self._record.say([*notes, *place.notes])
            found = host.train(self._record, failover_place)
            if self._record is not None:
                assert found is not None
                self.summary = self._record.finish(found)

    def _say(self, text: str) -> None:
        if not self._quiet:
            print(text, flush=True)


def run_course(
    recipe: Recipe,
    options: MachineOptions = ONE_NODE,
    asked_ranks: int = 0,
    *,
    watch: bool = False,
    last: bool = False,
    trust: Trust = ANY,
    confirm: Callable[[Trust, Recipe], object] = Trust.check,
    quiet: bool = False,
) -> Course:
    """Runs a recipe from start to verdict, with the host that `choose_host` finds; the course, which is over.

    watch: with a live page. last: this process ends with the run, so signals that come too late stay ignored. trust,
    confirm: which of its code may run, and how that is checked; it may ask. quiet: only warnings are shown.
    """
    # The pages are left after the run directory is complete.
    with nullcontext() if last else restore_handlers(), ExitStack() as pages:
        recipe, host = choose_host(recipe, options, asked_ranks, confirm)
        course = Course(recipe, host, trust=trust, pages=pages if watch else None, quiet=quiet)
        course.run()
    return course


def run_recipe(recipe: Recipe, options: MachineOptions = ONE_NODE) -> dict[str, Any] | None:
    """The same with defaults; the summary, in the process that writes it."""
    return run_course(recipe, options).summary
