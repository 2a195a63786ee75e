"""SLURM as a user has it: sbatch, scontrol, squeue, scancel, each called with a time-out, each answer checked.

The one idea: a call gives text or raises: no SLURM here, and it does not answer (or not as expected), and it refuses,
are three errors that say so in its own words.

    number = submit(Path("r2.sbatch")); jobs_of(number)

A job on another of several clusters (sbatch's --clusters) is called 17@big, and its cluster is asked for it (-M big).

Limits: reads `scontrol show job`, which knows a finished job for some minutes (MinJobAge) and then no more.
"""

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

from unisono.errors import UnisonoError, UserError
from unisono.launch.slurm.command import Answer, is_absent, is_unknown_job, run_command
from unisono.launch.slurm.quoting import as_path
from unisono.launch.slurm.script import MARK

CALL_S, ASK_S = 60.0, 15.0
"""Time-outs of commands that change something, and of questions; SLURM's own commands give up after 10 s."""
OVER = frozenset(
    {
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
        "TIMEOUT", "REVOKED",
    }
)  # fmt: skip
"""States after which nothing comes."""
_NUMBER = r"\d{1,18}(?:_\d{1,18})?"
_CLUSTER = r"\w[\w.-]{0,99}"

PING_HINT = "scontrol ping tells whether its controller is up; unisono doctor, what else is here"


class NoAnswer(UnisonoError):
    """SLURM could not be asked; it may be possible later. `reason`: what was seen of it."""

    def __init__(self, reason: str, *, left: str = "", hint: str = PING_HINT) -> None:
        """left: what has become of what was to be done."""
        super().__init__(f"SLURM does not answer here: {reason}{left and f'; {left}'}", hint=hint)
        self.reason = reason


@final
class Refused(UserError):
    """A command of SLURM's failed; `said`: its own words."""

    def __init__(self, program: str, said: str) -> None:
        super().__init__(f"{program} refused: {said}")
        self.said = said


@final
class NoSuchJob(UserError):
    """SLURM knows none of this number, or no more."""


@final
@dataclass(frozen=True)
class Job:
    """A job, or a task of an array, at one moment."""

    number: str
    """17, or 17_3 for a task of an array; with @ and the cluster, if it is another one."""
    name: str
    state: str
    reason: str
    exit_code: int
    restarts: int
    nodes: str
    run_time: str
    time_limit: str
    output: str
    """The file that its output goes to."""
    ours: bool
    """Whether unisono submitted it."""
    owner: str = ""
    """The user whose job it is; empty: this one's."""

    @property
    def over(self) -> bool:
        """Whether it has ended for good."""
        return self.state in OVER


def available() -> bool:
    """Whether there is a SLURM here."""
    return shutil.which("sbatch") is not None


def submit(script: Path) -> str:
    """Submits a script; the job's number."""
    later = f"sbatch {shlex.quote(as_path(str(script)))}"
    again = f"unisono jobs tells whether it got there all the same; if not, later: {later}"
    try:
        told = call(["sbatch", "--parsable", os.path.abspath(script)], CALL_S)  # never an option of sbatch's
    except UserError as error:
        hints = filter(None, (error.hint, f"what was asked for is in {script}"))
        raise UserError(error.message, hint="; ".join(hints)) from None
    except NoAnswer as error:
        raise NoAnswer(error.reason, hint=again) from None
    # Of several clusters it tells which: 17;big. A site's own sbatch may say more before.
    for line in reversed(told.split("\n")):
        if found := re.fullmatch(rf"({_NUMBER})(?:;({_CLUSTER}))?", line.strip(), re.ASCII):
            return _joined(found[1], found[2] or "")
    raise NoAnswer(not_understood("sbatch", told), hint=again)


def jobs_of(number: str) -> list[Job]:
    """A job, or all tasks of an array, at least one; `NoSuchJob` if there is none."""
    bare, cluster = split_number(number)
    try:
        told = call(["scontrol", *_on(cluster), "--oneliner", "show", "job", bare])
    except Refused as refusal:
        if not is_unknown_job(refusal.said):
            raise
        told = ""
    found = [job for line in told.split("\n") if (job := _parse(line, cluster))]
    if not found and told.strip() and not is_unknown_job(told):
        raise NoAnswer(not_understood("scontrol", told))  # the job may be there, and run
    if not found:
        raise NoSuchJob(
            f"SLURM knows no job {number}", hint="unisono jobs lists yours; those that ended long ago are forgotten"
        )
    return found


def my_jobs(clusters: Sequence[str] = ("",)) -> list[Job]:
    """All jobs of this user that unisono submitted and SLURM still knows, the oldest first. "": the cluster here."""
    found: list[Job] = []
    for cluster in clusters:
        # %F: of an array its number, by which scontrol tells of all its tasks; %A would be each task's own.
        told = call(["squeue", *_on(cluster), "--me", "--noheader", "--states=all", "--format=%F %k"])
        rows = [line.split() for line in told.split("\n") if re.match(r"\s*\d{1,18}(\s|$)", line, re.ASCII)]
        if not rows and told.strip() and "CLUSTER: " not in told:  # of a cluster that was named, also its name
            raise NoAnswer(not_understood("squeue", told))
        for number in sorted({row[0] for row in rows if row[1:] == [MARK]}, key=int):
            with suppress(NoSuchJob):  # forgotten since
                found += jobs_of(_joined(number, cluster))
    return found


def cancel(number: str) -> None:
    """Ends a job: its ranks are asked to, and killed after a while."""
    bare, cluster = split_number(number)
    call(["scancel", *_on(cluster), bare], CALL_S)


def plugins() -> list[str]:
    """What may stand after srun's --mpi=."""
    told = _run(["srun", "--mpi=list"], ASK_S)
    return re.findall(r"^\s+(\w+)$", told.out + told.err, re.MULTILINE)


def call(words: list[str], timeout_s: float = 0.0) -> str:
    """What a command of SLURM's prints. timeout_s: `ASK_S` if it is 0."""
    if not available():
        raise UserError("there is no SLURM on this machine: sbatch is not on PATH", hint="run this on a login node")
    ended = _run(words, timeout_s or ASK_S)
    if ended.code == 0:
        return ended.out
    told = _excerpt(ended.err) or f"exit code {ended.code}"
    if is_absent(told):
        raise NoAnswer(f"{words[0]}: {_essential(words[0], ended.err)}")
    raise Refused(words[0], told)


def not_understood(program: str, told: str) -> str:
    """What to say of an answer that is not one of SLURM's, or of a SLURM that we do not know."""
    return f"{program} answered, but not as expected: {_excerpt(told, 80) or 'nothing'}"


def split_number(number: str) -> tuple[str, str]:
    """17@big -> 17, big; a `UserError` if it is no number of a job."""
    found = re.fullmatch(rf"({_NUMBER})(?:@({_CLUSTER}))?", number, re.ASCII)
    if found is None:
        raise UserError(f"{number!r} is no number of a job", hint="such as 17, or 17_3 in an array: unisono jobs")
    return found[1], found[2] or ""


def _run(words: list[str], timeout_s: float) -> Answer:
    try:
        return run_command(words, timeout_s)
    except TimeoutError as error:
        raise NoAnswer(f"{words[0]} {error.strerror}") from None
    except OSError as error:
        raise NoAnswer(f"{words[0]}: {error.strerror or error}") from None


def _excerpt(told: str, most: int = 500) -> str:
    line = " ".join(told.split())
    return line if len(line) <= most else f"{line[:most]}..."


def _essential(program: str, told: str) -> str:
    """The last line of several tries, which says what came of them, without the program's name and what kind it is."""
    last = next(line.strip() for line in reversed(told.splitlines()) if line.strip())
    return _excerpt(re.sub(rf"^({re.escape(program)}: )?((error|fatal): )?", "", last))


def _joined(number: str, cluster: str) -> str:
    return f"{number}@{cluster}" if cluster else number


def _on(cluster: str) -> list[str]:
    if cluster and not re.fullmatch(_CLUSTER, cluster, re.ASCII):
        raise UserError(f"{cluster!r} is no name of a cluster", hint="sacctmgr show clusters lists them")
    return [f"--clusters={cluster}"] if cluster else []


def _parse(line: str, cluster: str = "") -> Job | None:
    """A line of `scontrol --oneliner show job`; None if it lacks what a job has: a number and a state."""

    def value(key: str) -> str:
        found = re.search(rf"(?:^| ){key}=(.*?)(?= [A-Z]\w*(?:[/:]\w+)*=|$)", line)
        return found[1].strip() if found and found[1] != "(null)" else ""

    number, state = value("JobId"), value("JobState")
    if not line.startswith("JobId=") or not re.fullmatch(_NUMBER, number, re.ASCII) or not state:
        return None
    code, _, signal = value("ExitCode").partition(":")
    array, task = value("ArrayJobId"), value("ArrayTaskId")
    user = re.fullmatch(r"(.*)\((\d{1,18})\)", value("UserId"), re.ASCII)
    return Job(
        number=_joined(f"{array}_{task}" if array else number, cluster),
        name=value("JobName"),
        state=state,
        reason=value("Reason"),
        exit_code=min(255, _whole(code) or (128 + _whole(signal) if _whole(signal) else 0)),
        restarts=_whole(value("Restarts")),
        nodes=value("NodeList"),
        run_time=value("RunTime"),
        time_limit=value("TimeLimit"),
        output=value("StdOut"),
        ours=value("Comment") == MARK,
        owner="" if not user or int(user[2]) == os.getuid() else user[1],
    )


def _whole(text: str) -> int:
    """0 for what is no number: UNLIMITED, n/a, nothing."""
    return int(text) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else 0
