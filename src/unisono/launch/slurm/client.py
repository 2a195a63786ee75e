"""SLURM as a user has it: sbatch, scontrol, squeue, scancel, each called with a time-out, each answer checked.

The one idea: a call gives text or raises: no SLURM here, and it does not answer, and it refuses, are three errors that
say so in its own words.

    number = submit(Path("r2.sbatch")); jobs_of(number)

A job on another of several clusters (sbatch's --clusters) is called 17@big, and its cluster is asked for it (-M big).

Limits: reads `scontrol show job`, which knows a finished job for some minutes (MinJobAge) and then no more.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

from unisono.errors import UnisonoError, UserError
from unisono.launch.slurm.script import MARK

CALL_S, ASK_S = 60.0, 15.0
"""For what changes something, and for questions, on which somebody waits; SLURM's own commands give up after 10 s."""
ABSENT = (
    "Unable to contact|timed out|Zero Bytes|Connection refused|try again|configuration source|Communication connection"
)
"""What they say then."""
OVER = frozenset(
    {
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
        "TIMEOUT", "REVOKED",
    }
)  # fmt: skip
"""States after which nothing comes."""


AWAY = "scontrol ping tells whether its controller is up; unisono doctor, what else is here"


class NoAnswer(UnisonoError):
    """SLURM could not be asked; it may be possible later. `reason`: what was seen of it."""

    def __init__(self, reason: str, *, left: str = "", hint: str = AWAY) -> None:
        """left: what has become of what was to be done."""
        super().__init__(f"SLURM does not answer here: {reason}{left and f'; {left}'}", hint=hint)
        self.reason = reason


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
    try:
        told = call(["sbatch", "--parsable", str(script)], CALL_S)
    except UserError as error:
        raise UserError(str(error), hint=f"what was asked for is in {script}") from None
    except NoAnswer as error:
        again = f"unisono jobs tells whether it got there all the same; if not, later: sbatch {script}"
        raise NoAnswer(error.reason, hint=again) from None
    return told.strip().replace(";", "@")  # of several clusters it tells which: 17;big


def jobs_of(number: str) -> list[Job]:
    """A job, or all tasks of an array, at least one; `NoSuchJob` if there is none."""
    try:
        bare, cluster = _split(number)
        told = call(["scontrol", *_on(cluster), "--oneliner", "show", "job", bare])
    except UserError as error:
        if "Invalid job id" not in str(error):
            raise
        told = ""
    found = [_parse(line, cluster) for line in told.splitlines() if line.startswith("JobId=")]
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
        rows = [line.split() for line in told.splitlines()]  # of a cluster that was named, also its name
        numbers = {row[0] for row in rows if row[1:] == [MARK] and row[0].isdecimal()}
        for number in sorted(numbers, key=int):
            with suppress(NoSuchJob):  # forgotten since
                found += jobs_of(_joined(number, cluster))
    return found


def cancel(number: str) -> None:
    """Ends a job: its ranks are asked to, and killed after a while."""
    bare, cluster = _split(number)
    call(["scancel", *_on(cluster), bare], CALL_S)


def plugins() -> list[str]:
    """What may stand after srun's --mpi=."""
    told = _run(["srun", "--mpi=list"], ASK_S)
    return re.findall(r"^\s+(\w+)$", told.stdout + told.stderr, re.MULTILINE)


def call(words: list[str], timeout_s: float = 0.0) -> str:
    """What a command of SLURM's prints. timeout_s: `ASK_S` if it is 0."""
    if not available():
        raise UserError("there is no SLURM on this machine: sbatch is not on PATH", hint="run this on a login node")
    ended = _run(words, timeout_s or ASK_S)
    if ended.returncode == 0:
        return ended.stdout
    told = " ".join(ended.stderr.split()) or f"exit code {ended.returncode}"
    if re.search(ABSENT, told, re.IGNORECASE):
        raise NoAnswer(f"{words[0]}: {_essential(words[0], ended.stderr)}")
    raise UserError(f"{words[0]} refused: {told}")


def _run(words: list[str], timeout_s: float) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            words, capture_output=True, text=True, timeout=timeout_s, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"{words[0]} said nothing for {timeout_s:g} s") from None


def _essential(program: str, told: str) -> str:
    """The last line of several tries, which says what came of them, without the program's name and what kind it is."""
    last = next(line.strip() for line in reversed(told.splitlines()) if line.strip())
    return re.sub(rf"^({re.escape(program)}: )?((error|fatal): )?", "", last)


def _split(number: str) -> tuple[str, str]:
    """17@big -> 17, big."""
    bare, _, cluster = number.partition("@")
    return bare, cluster


def _joined(number: str, cluster: str) -> str:
    return f"{number}@{cluster}" if cluster else number


def _on(cluster: str) -> list[str]:
    return ["-M", cluster] if cluster else []


def _parse(line: str, cluster: str = "") -> Job:
    """A line of `scontrol --oneliner show job`."""

    def value(key: str) -> str:
        found = re.search(rf"(?:^| ){key}=(.*?)(?= [A-Z]\w*(?:[/:]\w+)*=|$)", line)
        return found[1].strip() if found and found[1] != "(null)" else ""

    code, _, signal = value("ExitCode").partition(":")
    array, task = value("ArrayJobId"), value("ArrayTaskId")
    user = re.fullmatch(r"(.*)\((\d+)\)", value("UserId"))
    return Job(
        number=_joined(f"{array}_{task}" if array else value("JobId"), cluster),
        name=value("JobName"),
        state=value("JobState"),
        reason=value("Reason"),
        exit_code=int(code or 0) or (128 + int(signal) if int(signal or 0) else 0),
        restarts=int(value("Restarts") or 0),
        nodes=value("NodeList"),
        run_time=value("RunTime"),
        time_limit=value("TimeLimit"),
        output=value("StdOut"),
        ours=value("Comment") == MARK,
        owner="" if not user or int(user[2]) == os.getuid() else user[1],
    )
