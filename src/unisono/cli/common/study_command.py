"""What commands that are studies have in common: show the plan, carry it out with progress, show what was found.

    run_study(StudyPlan("scale", cells, StudyOptions()), lambda records, path: print(len(records)))

The one idea: whatever ends a study, Ctrl-C and SIGTERM included, what was finished is on the disk, is shown, and is
where the same command goes on. Lines on the way go to standard error, tables to standard output.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from unisono.cli.common.study_jobs import SlurmRunner
from unisono.data.sources import check_data_dir
from unisono.environment.os_environ import detect
from unisono.errors import Interrupted, UnisonoError, UserError
from unisono.files import expand_user
from unisono.measure.options import StudyOptions
from unisono.os_limits import check_temporary_directory
from unisono.report.run.outcome_and_advice import plural, readable_s
from unisono.report.terminal.console import Console
from unisono.resources import usable_cores
from unisono.safe_print import print
from unisono.strategies.registry import resolve
from unisono.study.cell_process import FAILED
from unisono.study.cells import Cell
from unisono.study.provenance import inputs_of, write_about
from unisono.study.study import Record, RunOptions, Turn, carry_out, counted, estimate_s, latest, run_order, try_out
from unisono.study.study_directory import Records, default_path, writing
from unisono.supervise.signals import as_ctrl_c
from unisono.training.checks import check_machine, check_shards
from unisono.trust import code_of

TRIAL_TIMEOUT_S = 120.0
PIPED_WIDTH = 160
"""Width of tables that do not go to a terminal, in characters."""


@final
@dataclass(frozen=True)
class StudyPlan:
    """A study before it is carried out."""

    kind: str
    cells: Sequence[Cell]
    options: StudyOptions
    job_runner: SlurmRunner | None = None
    """Runs the cells; None: processes of this machine do."""

    @cached_property
    def studied(self) -> dict[str, Any]:
        """What tells it from others: the cells, by what they run, and what that was; as which jobs."""
        cells = {"cells": {cell.name: cell.digest for cell in self.cells}}
        studied = cells | inputs_of([cell.recipe for cell in self.cells])
        if self.job_runner is None:
            return studied
        # As it would be read back: tuples are lists there.
        return studied | {
            "slurm": {name: _plain(value) for name, value in asdict(self.job_runner.job).items() if value}
        }

    @property
    def path(self) -> Path:
        """Where its records are."""
        if self.options.out:
            return expand_user(self.options.out)
        return default_path(self.kind, self.cells[0].recipe, self.studied)

    @property
    def turns(self) -> list[Turn[Cell]]:
        """Every run, in order."""
        return run_order(self.cells, self.options.repeat, self.options.warmup)


def console() -> Console:
    """For tables, on standard output."""
    return Console(width=None if sys.stdout.isatty() else PIPED_WIDTH, markup=False)


def run_study(plan: StudyPlan, show: Callable[[Sequence[Record], Path], None]) -> None:
    """Carries the plan out and shows the results; if it is interrupted, those that exist."""
    if (size := detect().size) > 1:
        raise UserError(
            f"{plan.kind} was started as {size} ranks, and starts its own", hint=f"run it once: unisono {plan.kind}"
        )
    check_temporary_directory()
    for recipe in (cell.recipe for cell in plan.cells):
        check_data_dir(recipe.data.name, recipe.data.directory)
        if plan.job_runner is None:
            check_machine(recipe)
    terms = RunOptions(plan.options.timeout_s, plan.options.retry, job_runner=plan.job_runner)
    if plan.options.dry_run:
        _refuse_idle_ranks(plan)
        show_plan(plan)
        return
    with Records.open(plan.path, plan.kind, plan.studied) as records, as_ctrl_c():
        with writing(plan.path):
            write_about(plan.path, [cell.recipe for cell in plan.cells], here=plan.job_runner is None)
        try:
            _carry_out(plan, records, terms)
        except KeyboardInterrupt:
            early = not _measured(plan, records)
            if not early:
                with suppress(UnisonoError), writing(plan.path):  # what is there may be too little to say anything
                    show(records.all, plan.path)
            hint = "the same command goes on"
            if plan.job_runner is not None:
                hint += "; so does a job that was submitted: unisono jobs, unisono cancel"
            raise Interrupted(str(plan.path), hint=hint, early=early) from None
        with writing(plan.path):
            show(records.all, plan.path)
        if not _measured(plan, records):
            raise UnisonoError("every run failed: the reasons are above", hint="--retry runs them again")


def _measured(plan: StudyPlan, records: Records) -> bool:
    """Whether there is a run to tell of."""
    return any(counted(records.all, cell) for cell in plan.cells)


def _carry_out(plan: StudyPlan, records: Records, terms: RunOptions) -> None:
    status, every = Console(stderr=True, markup=False), plan.turns
    known = sum(turn.repeat in latest(records.all, turn.cell) for turn in every)
    status.print(
        f"unisono {plan.kind}: {plural(len(plan.cells), 'cell')}, {plural(len(every), 'run')}"
        + (f", {known} of them are there already" if known else "")
        + f"; in {plan.path}, {'a SLURM job each' if plan.job_runner else plural(usable_cores(), 'core')}",
        highlight=False,
        soft_wrap=True,
    )
    columns = (TextColumn("{task.description:<40}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=status, auto_refresh=False, disable=not status.is_terminal) as progress:
        task = progress.add_task("starting", total=len(every))

        def tell(cell: Cell, line: str) -> None:
            if line.startswith("epoch "):
                progress.update(task, description=f"{cell.name}: {line.split('  ')[0]}"[:60], refresh=True)

        before = len(records.all)
        for record in carry_out(records, every, replace(terms, on_line=tell)):
            progress.update(task, advance=1, description=record["cell"][:60], refresh=True)
            if len(records.all) > before:
                before = len(records.all)
                progress.console.print(_line(record), highlight=False, soft_wrap=True, markup=False)


def _line(record: Record) -> str:
    """A run that is over."""
    number = f"run {record['repeat'] + 1}" if record["repeat"] >= 0 else "warm-up"
    if record["status"] == FAILED:
        return f"{record['cell']}, {number}: {record['reason']}"
    summary: Mapping[str, Any] = record["summary"]
    return (
        f"{record['cell']}, {number}: {readable_s(summary['train_s'])} of training, "
        f"{summary['samples_per_s']:,.0f} samples/s, {readable_s(record['elapsed_s'])} from start to exit"
    )


def _refuse_idle_ranks(plan: StudyPlan) -> None:
    """A `UserError`, what its run would say, for the first cell that has more ranks than shards."""
    for recipe in (cell.recipe for cell in plan.cells):
        if 0 < recipe.ranks.shards < recipe.ranks.count:
            check_shards(resolve(recipe))


def show_plan(plan: StudyPlan) -> None:
    """The runs in their order, and about how long they take."""
    print(f"unisono {plan.kind}: {plural(len(plan.cells), 'cell')}, {plural(len(plan.turns), 'run')}, in {plan.path}")
    for number, turn in enumerate(plan.turns, 1):
        print(f"{number:>4}  {turn.cell.name}" + ("  (warm-up)" if turn.repeat < 0 else ""))
    with _there(plan) as records:
        left = [turn for turn in plan.turns if turn.repeat not in latest(records, turn.cell)]
        if not left:
            print("All of them are there already: nothing is left to run.")
            return
        if plan.job_runner is not None:
            print("How long they take, and wait, only the cluster knows.")
            return
        first = plan.cells[0]
        if code := code_of(first.recipe):
            print(f"No estimate, for one epoch of {first.name} would run {', '.join(map(repr, code.values()))}.")
            return
        trial = try_out(first, min(TRIAL_TIMEOUT_S, plan.options.timeout_s))
        if trial.reason:
            print(f"No estimate, for one epoch of {first.name} failed: {trial.reason}")
            return
        took = readable_s(estimate_s(left, records, trial, usable_cores()))
        print(
            f"About {took} for {plural(len(left), 'run')}, from one epoch of {first.name} "
            f"({readable_s(trial.epoch_s)}, and {readable_s(trial.start_s)} around it), "
            f"as if more ranks were as much faster; slower cells take longer."
        )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@contextmanager
def _there(plan: StudyPlan) -> Iterator[Sequence[Record]]:
    """The records that are there, without making a directory."""
    if not (plan.path / "study.json").exists():
        yield []
        return
    with Records.open(plan.path, plan.kind, plan.studied) as records:
        yield records.all
