"""Recorder: writes a run down and shows it, as its records come in.

    with Recorder(job, "shm", hosts) as record:
        record.finish(run(work, 4, on_report=lambda rank, value: record.add(value))[0])

The one idea: one process tells and writes, and it outlives what happens to the run: a full disk is said once and the
training goes on; whatever ends the run, the bar is taken away and the summary says how it ended. A mistake of the
user's that is found before the first epoch (too little memory) leaves no directory.

Records are the reports of `messages/rank_reports.py`. If `WeightsTrouble` is left at the end, the run is told as
finished, and the command fails. If `FinalWeights` are nowhere, the run is not finished, and can be resumed if it has a
snapshot.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self, final

from unisono import __version__
from unisono.errors import RESUME_ME, RankFailed, UnisonoError, UserError
from unisono.files import WRONG_KINDS
from unisono.messages.events import Event, SnapshotWritten
from unisono.messages.rank_reports import EpochRecord, FinalWeights, Note, Progress, RankProcess, Report, WeightsTrouble
from unisono.report.run.aggregate import TIMES, RunTotals, sample_shares
from unisono.report.run.hopeless_loss import Divergence, guess_of
from unisono.report.run.loss_plot import plot_loss
from unisono.report.run.outcome_and_advice import plural, verdict
from unisono.report.run.staleness import AsyncSetting, Staleness
from unisono.report.run.tensorboard import EventFile
from unisono.report.terminal.progress_bar import Screen
from unisono.report.terminal.training import Setting, epoch_line, event_line, opening, rank_lines
from unisono.resources import machine, usable_cores
from unisono.runs.early_end import Halted
from unisono.runs.energy_monitor import EnergyMonitor
from unisono.runs.snapshots.saver import data_note
from unisono.safe_print import printable
from unisono.storage.fallback_writer import FULL
from unisono.storage.resume import SNAPSHOTS, check_newest, damaged_notes
from unisono.storage.retrying_writer import hint_of
from unisono.storage.run_files import resume_command
from unisono.storage.rundir import RunDirectory
from unisono.storage.snapshots.snapshot import Snapshot, listed
from unisono.storage.snapshots.writer import prune
from unisono.storage.weights import epoch_in
from unisono.training.bits_and_speed_trials import kernel_dependences
from unisono.training.fingerprint import differences, fingerprint, libraries_of
from unisono.training.job import Job
from unisono.user_code.source_files import file_in
from unisono.user_code.tracebacks import own_traceback as traceback_of

ENGINES = {"numpy": "NumPy", "torch": "torch"}
"""As one writes them."""


NOTHING: Mapping[str, Any] = MappingProxyType({})


@final
class Recorder:
    """The one that speaks and writes, for a whole run."""

    def __init__(
        self,
        job: Job,
        transport: str,
        hosts: Sequence[str] | None = None,
        snapshot: Snapshot | None = None,
        devices: Sequence[str] = (),
        *,
        anew: bool = False,
        quiet: bool = False,
    ) -> None:
        """hosts: of the ranks; None: not known before they tell, and there is no bar: what another launcher's ranks say
        often ends in a file. snapshot: from which the run goes on. devices: of the ranks, where there is a choice.
        anew: in the directory that the run has begun already, from the beginning. quiet: only warnings are shown."""
        self._begun = time.perf_counter()
        self._job, self._transport = job, transport
        layout = job.model().layout
        self._parameters = list(layout.names)
        self._saved = False
        self._totals = RunTotals(layout.sizes, _dealt(job))
        self._staleness = None
        if job.spec.asynchronous:
            self._staleness = Staleness(AsyncSetting.of(job.recipe, job.dataset.classes))
        self._divergence = Divergence(guess_of(job.dataset), job.recipe.learning.lr, job.recipe.learning.epochs)
        self._screen = Screen(job.recipe.learning.epochs, bar=hosts is not None, quiet=quiet)
        self._troubles: dict[str, str] = {}
        self._weights_path: str | None = ""
        self._weights_trouble = ""
        self._epoch = 0
        self._ended, self._is_rank = False, hosts is None
        self._events = EventFile() if job.recipe.output.tensorboard else None
        self._resumed_from: str | None = None
        if anew:
            self._directory = RunDirectory.reopen(Path(job.recipe.output.directory), 0, job.recipe)
        elif snapshot is None:
            self._directory = RunDirectory.make(job.recipe.output.directory, job.recipe)
        else:
            self._epoch = snapshot.facts["epoch"] - (snapshot.facts["step"] <= job.plan.steps_per_epoch)
            check = partial(check_newest, job.recipe, snapshot)  # others may have gone on with it since it was found
            self._directory = RunDirectory.reopen(Path(job.recipe.faults.resume), self._epoch, job.recipe, check)
            self._resumed_from = str(snapshot.path)
        self.path, self.weights = self._directory.path, self._directory.weights
        self.token = self._directory.token
        self.energy = EnergyMonitor(self.path, devices, job.recipe.output.watts_per_core)
        tried = [] if self._is_rank else kernel_dependences(job)
        setting = Setting(ENGINES[job.recipe.model.engine], transport, usable_cores(), hosts, devices, tried)
        with ExitStack() as kept:
            kept.enter_context(self._directory)
            self._screen.say(opening(job, setting))
            if snapshot is not None:
                self._tell_resumed(snapshot)
            kept.pop_all()  # until `__exit__`

    @property
    def log(self) -> Path:
        """Where ranks leave what they have to say when something is wrong."""
        return self.path / "log"

    @property
    def resume_command(self) -> str:
        """The command that goes on with the run when the user's own code was corrected; empty if nothing was kept."""
        if not listed(self.path / SNAPSHOTS):
            return ""
        changed = " --allow-change model" if file_in(self._job.recipe.model.name) else ""
        return f"{resume_command(self.path)}{changed}"

    def say(self, notes: Sequence[str]) -> None:
        """What the user should know before it starts."""
        for note in notes:
            self._screen.say(note)

    def add(self, report: Report) -> None:
        """What a rank reported."""
        match report:
            case RankProcess(rank, pid):
                self.energy.see(rank, pid)
            case Progress():
                self.energy.tick()
                self._screen.progress(report)
            case Note(text):
                self._screen.warn(f"unisono: {text}")
            case WeightsTrouble():
                self._weights_trouble = report.message
                self._tell_trouble("rank", report.text)
            case FinalWeights():
                self._weights_trouble, self._weights_path = report.message, report.path
                self._tell_trouble("rank", report.text)
            case EpochRecord(metrics) if (
                metrics["epoch"] > self._epoch
            ):  # told again if the first teller died meanwhile
                self._epoch = metrics["epoch"]
                self._add_epoch(replace(report, metrics=self._scored(metrics)))

    def add_event(self, event: Event) -> None:
        """A death, a take-over, a join, a snapshot."""
        self._saved |= isinstance(event, SnapshotWritten)
        self._directory.add_event(event.to_json() | {"s_after_start": time.perf_counter() - self._begun})
        if told := event_line(event):
            self._screen.say(told)

    def _tell_resumed(self, snapshot: Snapshot) -> None:
        facts = snapshot.facts
        whole = facts["step"] > self._job.plan.steps_per_epoch
        where = f"after epoch {facts['epoch']}" if whole else f"epoch {facts['epoch']}, after step {facts['step']}"
        self._screen.say(f"Resumed from {snapshot.path}: {where}.")
        for told in damaged_notes(snapshot):
            self._screen.warn(f"unisono: {told}; the one before it is used")
        if told := data_note(snapshot):
            self._screen.warn(f"unisono: {told}")
        if lacking := self._directory.lacking:
            told = f"metrics.jsonl lacks {plural(lacking, 'epoch')} before that: it was damaged"
            self._screen.warn(f"unisono: {told}; the weights are not touched by it")
        if found := differences(facts["fingerprint"], fingerprint(self._job.recipe.ranks.threads)):
            told = "; ".join(found)
            self._screen.warn(f"unisono: not all is as it was at the snapshot, so bits may differ: {told}")

    def _add_epoch(self, record: EpochRecord) -> None:
        metrics, steps = record.metrics, record.steps
        self._totals.add(record)
        if self._staleness is not None:
            self._staleness.add(record)
        self._directory.add(record, self._parameters)
        self._tell_trouble("directory", self._directory.writer.trouble)
        self._write_events(lambda events: events.add(record, self.path / "tensorboard"))
        if self._job.recipe.output.log_ranks:
            self._screen.say(rank_lines(record, self._parameters))
        self._screen.say(epoch_line(metrics, self._job.recipe.learning.epochs))
        if warning := self._divergence.add(metrics):
            self._screen.warn(warning)
        if metrics["epoch"] < self._job.recipe.learning.epochs:
            self._screen.progress(Progress(metrics["epoch"], steps, steps, metrics["samples_per_s"]))

    def _write_events(self, write: Callable[[EventFile], None]) -> None:
        """For TensorBoard; not worth stopping for."""
        if self._events is not None:
            try:
                write(self._events)
            except OSError as error:
                hint = hint_of(error, "make the run directory writable again")
                where = f"{error.filename} " if error.errno in WRONG_KINDS else ""
                told = f"events for TensorBoard cannot be written: {where}{error.strerror}"
                self._tell_trouble("events", f"{told}\nHINT: {hint}")
            else:
                self._tell_trouble("events", "")

    def fail(
        self, report: str, status: str = "failed", *, mistake: bool = False, counted: Mapping[str, Any] = NOTHING
    ) -> None:
        """The run ended before its time. mistake: the user's; found before the first epoch, and before a snapshot, it
        leaves nothing. counted: what else is known for the summary."""
        self._screen.close()
        self._ended = True
        self._write_events(EventFile.close)
        if mistake and not self._totals.steps and not self._saved:
            self.energy.discard()
            self._directory.discard()
        else:
            self._directory.finish(self._facts() | dict(counted) | {"status": status, "error": report})
            if self._totals.steps:
                self._directory.writer.keep("loss.png", lambda: plot_loss(self.path))
            if self._directory.writer.error is not None:
                self._screen.warn(f"unisono: {self._directory.writer.trouble}")

    def finish(self, found: dict[str, Any]) -> dict[str, Any]:
        """The verdict. A `UserError` after it if something could not be written; before it if that is the weights."""
        if self._weights_path is None:
            raise self._unsaved()
        self._screen.close()
        self._ended = True
        self._write_events(EventFile.close)
        totals, directory = self._totals, self._directory
        summary = self._facts() | self._scored(found)
        summary["others_cores"] = self.energy.others_cores()
        summary |= {"status": "finished", "wall_s": time.perf_counter() - self._begun}
        summary |= {name: totals.mean_s(name) for name in TIMES}
        summary["sync_s"] = summary["wait_s"] + summary["update_s"]
        summary["steady_sync_s"] = totals.steady_sync_s(found["first_sync_s"])
        summary |= {"train_s": totals.train_s, "epochs_timed": totals.epochs}  # fewer than all, if it was resumed
        if self._staleness is not None:
            summary |= self._staleness.facts()
        summary["samples_per_s"] = totals.samples / totals.train_s if totals.train_s else 0.0
        if self._weights_path and Path(self._weights_path) != self.weights:
            summary["weights_path"] = self._weights_path
        directory.finish(summary)
        full = (error := directory.writer.error) is not None and error.errno in FULL
        if full and prune(self.path / SNAPSHOTS, within=self.path):
            directory.finish(summary)
        directory.writer.keep("loss.png", lambda: plot_loss(self.path))
        missing = [self._troubles.get("rank", ""), directory.writer.trouble, self._troubles.get("events", "")]
        missing = [text for text in missing if text]
        lines = None if self._staleness is None else self._staleness.lines(summary)
        self._screen.say(
            verdict(
                summary, totals, printable(str(self.path)), usable_cores(), complete=not missing, strategy_lines=lines
            )
        )
        if missing:
            raise UserError("\n".join(missing))
        return summary

    def _unsaved(self) -> UnisonoError:
        """Nothing took the weights: whoever resumes the run computes them again, with the same bits."""
        kept = bool(listed(self.path / SNAPSHOTS))
        again = f"make room, then {resume_command(self.path)}" if kept else "make room, and train again"
        error = UnisonoError(
            f"{self._weights_trouble}: the run came to its end, and its weights could not be kept", hint=again
        )
        error.exit_code = RESUME_ME if kept else error.exit_code
        return error

    def _tell_trouble(self, whose: str, text: str) -> None:
        """Once, until it is over."""
        if text and whose not in self._troubles:
            self._screen.warn(f"unisono: {text}\nTraining goes on; what is missing is kept, and tried again.")
        elif not text and whose in self._troubles:
            self._screen.warn(f"unisono: {self.path} can be written again: nothing is missing")
        if text:
            self._troubles[whose] = text
        else:
            self._troubles.pop(whose, None)

    def _scored(self, numbers: dict[str, Any]) -> dict[str, Any]:
        """Without classes there is no accuracy, not one of 0."""
        classes = self._job.dataset.classes
        return {key: None if key.endswith("_accuracy") and not classes else value for key, value in numbers.items()}

    def _facts(self) -> dict[str, Any]:
        recipe = self._job.recipe
        return {
            "ranks": recipe.ranks.count, "nodes": self._totals.nodes, "shards": recipe.ranks.shards,
            "threads": recipe.ranks.threads,
            "strategy": recipe.strategy.name, "allreduce": recipe.strategy.allreduce, "transport": self._transport,
            "engine": recipe.model.engine, "precision": recipe.model.precision, "model": recipe.model.name,
            "data": recipe.data.name,
            "global_batch": self._job.batch_samples, "batch_size_per_rank": recipe.learning.batch_size_per_rank,
            "version": __version__, "machine": machine(*libraries_of([recipe])), "takeovers": 0, "restarts": 0,
            "resumed_from": self._resumed_from, "weights_epoch": epoch_in(self.weights), "shard_price": None,
            **self.energy.facts(self._totals.samples),
        }  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._directory:  # held until everything is in it
            self._screen.close()
            if error is not None and not self._ended:
                self._tell_failure(error)

    def _tell_failure(self, error: BaseException) -> None:
        report = error.user_message if isinstance(error, RankFailed) else str(error) or type(error).__name__
        if isinstance(error, Exception) and not isinstance(error, UnisonoError):  # its words alone may be "'x'"
            report = f"{'rank 0: ' if self._is_rank else ''}{traceback_of(error)}"
        code = error.exit_code if isinstance(error, UnisonoError) else 1
        status = "halted" if code == RESUME_ME else "failed"
        if isinstance(error, KeyboardInterrupt):
            status = "interrupted"
        counted = NOTHING
        if isinstance(error, Halted):
            counted = {"takeovers": error.outcome.takeovers, "restarts": error.outcome.restarts}
        self.fail(report, status, mistake=code == 2, counted=counted)


def _dealt(job: Job) -> list[float]:
    """Each rank's share of the samples whose contributions are looked at."""
    masters = job.spec.masters(job.recipe)
    alone = (
        None
        if job.sync_schedule is None
        else job.sync_schedule.span(job.recipe.learning.epochs, job.plan.steps_per_epoch - 1)
    )
    return sample_shares(job.plan, job.recipe.ranks.count, masters, alone)
