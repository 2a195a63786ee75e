"""Runs of a study as SLURM jobs: one job a run, submitted, waited for, its run directory read.

    runner = SlurmRunner(JobOptions(time="10"), Waiting()); record = runner(cell, recipe, run, timeout_s, on_line)

The one idea: a job's number is noted beside the run as soon as it has one, so that a study that was interrupted goes on
with the job that it had submitted, wherever that is by then: waiting, running or over.

Limits: the study's directory must be on a file system that the nodes share. A run is never queued again by itself: its
times would be those of several machines.
"""

import time
from dataclasses import dataclass, fields, make_dataclass, replace
from dataclasses import field as new_field
from pathlib import Path
from typing import Annotated, Any, final

from cyclopts import Group, Parameter

from unisono.errors import UnisonoError, UserError
from unisono.files import make_folder, read_file, write_file
from unisono.launch.slurm import client
from unisono.launch.slurm.client import Job, NoSuchJob
from unisono.launch.slurm.job_monitor import Output, ask, exit_code, job_line
from unisono.launch.slurm.options import JobOptions
from unisono.study.cell_process import FINISHED, outcome, read_summary
from unisono.study.cells import Cell
from unisono.study.study import Record, Tell
from unisono.study.study_directory import DiskRefused, writing
from unisono.trust import code_of

_MOST_SAID_BYTES, _MOST_NOTE_BYTES = 1 << 24, 1000
LEAVING_S = 60.0
"""How long a cancelled job may take to end."""
_DECIDED = (
    "nodes", "ranks_per_node", "job_name", "output", "error", "array", "array_option", "warn_s", "max_requeues",
)  # fmt: skip
"""Options of a job that the study decides itself."""


@final
@dataclass(frozen=True, kw_only=True)
class Waiting:
    """How jobs are waited for."""

    queue_timeout_s: float = 86400.0
    """With --slurm: a job that has not started after so long is cancelled, and is a row with that reason."""

    poll_s: float = 2.0
    """With --slurm: seconds between queries to SLURM."""

    def __post_init__(self) -> None:
        for name in ("queue_timeout_s", "poll_s"):
            if not 0 < getattr(self, name) < float("inf"):
                option = "--" + name.replace("_", "-")
                raise UserError(f"{option} is {getattr(self, name):g}", hint="give a number above 0")


def job_choices() -> type:
    """A dataclass with those options of `JobOptions` that are left to the user of a study, and `slurm` itself."""
    import docstring_parser

    group = Group("On SLURM", sort_key=-1)
    about = "Run every cell as a SLURM job on its nodes, and wait for it. The options below are for these jobs."
    flag = Annotated[bool, Parameter(help=about, negative="", group=group)]
    options: list[Any] = [("slurm", flag, new_field(default=False, kw_only=True))]
    help_of = {entry.arg_name: entry.description for entry in docstring_parser.parse_from_object(JobOptions).params}
    for entry in fields(JobOptions):
        if entry.name not in _DECIDED:
            shown = Parameter(help=help_of[entry.name], show_default=False, negative="", group=group)
            options.append((entry.name, Annotated[entry.type, shown], new_field(default=entry.default, kw_only=True)))
    made = make_dataclass("JobChoices", options, frozen=True)
    made.__module__ = __name__
    return made


JobChoices = job_choices()


def runner_of(choices: Any, waiting: Waiting) -> "SlurmRunner | None":
    """Who runs the cells; None: processes of this machine. A `UserError` if there is no SLURM to be asked."""
    given = {entry.name: getattr(choices, entry.name) for entry in fields(choices) if entry.name != "slurm"}
    job = JobOptions(**given)
    if not choices.slurm:
        if job != JobOptions():
            name = next(name for name, value in given.items() if value != getattr(JobOptions(), name))
            raise UserError(f"--{name} without --slurm", hint="give --slurm, too: then every run is a job")
        return None
    if not client.available():
        raise UserError(
            "--slurm, but there is no SLURM on this machine: sbatch is not on PATH",
            hint="run this on a login node; or leave --slurm out, and give grids of one node",
        )
    return SlurmRunner(job, waiting)


@final
@dataclass(frozen=True)
class SlurmRunner:
    """An `Elsewhere` of `study.Terms`."""

    job: JobOptions
    waiting: Waiting

    def pending(self, run: Path) -> bool:
        """Whether the job that was submitted for this run is known, or the run is finished."""
        note = _note(run)
        if not note.exists():
            return False
        return read_summary(run).get("status") == FINISHED or _state(_number(note)) is not None

    def __call__(self, cell: Cell, recipe: Path, run: Path, timeout_s: float, on_line: Tell, /) -> Record:
        """One job, to its end; what became of it."""
        begun, note = time.perf_counter(), _note(run)
        number = ""
        try:
            number = _number(note) if note.exists() else ""
            if not number:
                with writing(note):
                    number = self._submit(cell, recipe, run)
            code, said = self._wait(number, run, timeout_s, on_line)
            note.unlink(missing_ok=True)
        except client.NoAnswer as error:  # no fault of the cell's, and the next one would fare no better
            again = "unisono jobs, whether a job got there all the same; then the same command goes on"
            left = "the study ends here, and what was finished is kept"
            raise client.NoAnswer(error.reason, left=left, hint=f"{client.PING_HINT}; {again}") from None
        except DiskRefused:
            raise
        except UnisonoError as error:  # the job may go on: with the note, --retry goes on with it
            code, said = error.exit_code, f"unisono: {error}"
        elapsed_s = time.perf_counter() - begun
        # Who else was on its nodes only they could tell.
        return {"job": number, "elapsed_s": elapsed_s, "others_cores": None} | outcome(run, code, said)

    def _submit(self, cell: Cell, recipe: Path, run: Path) -> str:
        from unisono.cli.common.submission import Submission

        study = run.parent.parent
        for folder in (_note(run).parent, recipe.parent):
            make_folder(folder, within=study)
        cell.recipe.save(recipe, within=study)
        job = replace(
            self.job,
            nodes=cell.nodes,
            ranks_per_node=cell.recipe.ranks.count // cell.nodes,
            job_name=cell.slug,
            output=_literal(_said(run, "out").resolve()),
            error=_literal(_said(run, "err").resolve()),
            max_requeues=0,
        )
        asked = Submission(str(recipe.resolve()), {"out": str(run.resolve())}, job, trusted=bool(code_of(cell.recipe)))
        script = _said(run, "sbatch")
        write_file(script, asked.script(), within=study)
        asked.check_cluster()  # what it could not find out would be said for every run: sbatch will say it
        for kind in ("out", "err"):
            _said(run, kind).unlink(missing_ok=True)  # jobs append to what an earlier one has left
        number = client.submit(script)
        write_file(_note(run), number + "\n", within=study)
        return number

    def _wait(self, number: str, run: Path, timeout_s: float, on_line: Tell) -> tuple[int | None, str]:
        """(exit code, standard error); None: the job was cancelled because it took too long."""
        output = Output(_said(run, "out"))
        waiting_since = time.monotonic()
        running_since = None
        while (job := _state(number)) is not None and not job.over:
            output.show_new(on_line, last=False)
            now = time.monotonic()
            if job.state != "PENDING" and running_since is None:
                running_since = now
            if running_since is not None and now - running_since > timeout_s:
                return self._end(number, f"it took longer than {timeout_s:g} s (--timeout-s) and was ended")
            if running_since is None and now - waiting_since > self.waiting.queue_timeout_s:
                limit = f"{self.waiting.queue_timeout_s:g} s (--queue-timeout-s)"
                return self._end(number, f"job {number} had not started after {limit}: {job.reason}; it was cancelled")
            time.sleep(self.waiting.poll_s)
        output.show_new(on_line, last=True)
        try:
            said = read_file(_said(run, "err"), _MOST_SAID_BYTES).decode(errors="replace")
        except OSError as error:
            said = "" if isinstance(error, FileNotFoundError) else f"{_said(run, 'err')} {error.strerror}"
        if job is None:  # SLURM has forgotten it
            finished = read_summary(run).get("status") == FINISHED
            return (0 if finished else 1), said or f"SLURM knows nothing of job {number} any more"
        if job.state not in ("COMPLETED", "FAILED"):
            said += f"\nunisono: job {number}: {job_line(job)}"
        return exit_code(job), said

    def _end(self, number: str, why: str) -> tuple[None, str]:
        client.cancel(number)
        deadline = time.monotonic() + LEAVING_S
        while (job := _state(number)) is not None and not job.over and time.monotonic() < deadline:
            time.sleep(self.waiting.poll_s)
        return None, why


def _state(number: str) -> Job | None:
    """None: SLURM does not know it."""
    try:
        return ask(number, lambda text: None, 1.0)[0]
    except NoSuchJob:
        return None


def _note(run: Path) -> Path:
    return _said(run, "job")


def _number(note: Path) -> str:
    """The number of the job that was noted."""
    return read_file(note, _MOST_NOTE_BYTES).decode(errors="replace").strip()


def _literal(path: Path) -> str:
    """For sbatch, which takes %j and the like for numbers of the job."""
    return str(path).replace("%", "%%")


def _said(run: Path, kind: str) -> Path:
    """Files of the job beside the runs: jobs/NAME.out."""
    return run.parent.parent / "jobs" / f"{run.name}.{kind}"
