"""Following a job: its states as they change, its output as it grows, and in the end its exit code.

The one idea: SLURM is asked for the state every few seconds, and the output is read where the job writes it, on the
file system that login and compute nodes share.

    code = follow("17", print_line, say, poll_s=2.0)

Limits: an output that this machine cannot see is not shown; states that come and go between two questions are not seen.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import final

from unisono.files import open_file
from unisono.launch.slurm.client import Job, NoAnswer, jobs_of

MOST_FAILURES = 30
"""After so many questions without an answer no more are asked."""
_LOOK_S = 0.2
_MOST_BYTES = 1 << 24
"""Read at one look; the rest at the next."""

Say = Callable[[str], None]


def follow(number: str, show: Say, say: Say, poll_s: float) -> int:
    """Until the job, or every task of an array, has ended; the largest exit code.

    `show` gets each line of output, `say` what becomes of the job.
    """
    outputs: dict[str, Output] = {}
    states: dict[str, str] = {}
    asked = -poll_s
    seen: dict[str, Job] = {}
    while True:
        if time.monotonic() - asked >= poll_s:
            jobs = ask(number, say, poll_s)
            asked = time.monotonic()
            # SLURM forgets tasks that ended long before the others: how they ended counts all the same. Those that wait
            # are one entry, 17_2-9, which is gone when they are tasks of their own.
            seen = {name: job for name, job in seen.items() if job.over} | {job.number: job for job in jobs}
            for job in jobs:
                state = job_line(job)
                if states.get(job.number) != state:
                    states[job.number] = state
                    say(f"job {job.number}: {state}")
                if job.number not in outputs and job.output:
                    array = "_" in job.number.partition("@")[0]
                    outputs[job.number] = Output(Path(job.output), f"{job.number}: " if array else "")
        over = all(job.over for job in seen.values())
        for output in outputs.values():
            output.show_new(show, last=over)
        if over:
            return max(exit_code(job) for job in seen.values())
        time.sleep(min(_LOOK_S, poll_s))


def exit_code(job: Job) -> int:
    """Of a job that is over; never 0 if it did not complete."""
    return 0 if job.state == "COMPLETED" else job.exit_code or 1


def job_line(job: Job) -> str:
    """PENDING (Resources), RUNNING on n1, FAILED (exit code 2)."""
    if job.over:
        code = exit_code(job)
        more = f" (exit code {code})" if code else ""
        if job.state == "OUT_OF_MEMORY":
            more += ": a rank needed more memory than the job asked for; submit it with a larger --mem"
        if job.state == "TIMEOUT":
            more += ": the time limit; submit it with a larger --time, or with --max-requeues to go on"
        return job.state + more
    restarted = f", restart {job.restarts}" if job.restarts else ""
    return f"{job.state} {f'on {job.nodes}' if job.nodes else f'({job.reason})'}{restarted}"


def ask(number: str, say: Say, poll_s: float) -> list[Job]:
    """A job, or all tasks of an array; asks again while SLURM does not answer."""
    reason = ""
    for failures in range(MOST_FAILURES):
        try:
            return jobs_of(number)
        except NoAnswer as error:
            reason = error.reason
            if failures == 0:
                say(f"SLURM does not answer, asking again: {reason}")
        time.sleep(poll_s)
    raise NoAnswer(reason, left=f"job {number} may go on", hint=f"later: scontrol show job {number}")


@final
class Output:
    """A file that grows. prefix: before every line."""

    def __init__(self, path: Path, prefix: str = "") -> None:
        self._path, self._prefix = path, prefix
        self._read, self._rest = 0, b""

    def show_new(self, show: Say, *, last: bool) -> None:
        """Lines that are whole, since the last call; at the last also what is not."""
        while self._show_piece(show, last=last) and last:
            pass

    def _show_piece(self, show: Say, *, last: bool) -> bool:
        """Whether there may be more."""
        try:
            with open_file(self._path) as file:
                file.seek(self._read)
                found = file.read(_MOST_BYTES)
        except OSError:
            return False  # not there yet
        self._read += len(found)
        *whole, self._rest = (self._rest + found).split(b"\n")
        more = len(found) == _MOST_BYTES
        if self._rest and (len(self._rest) > _MOST_BYTES or (last and not more)):
            whole, self._rest = [*whole, self._rest], b""
        for line in whole:
            show(self._prefix + line.decode(errors="replace"))
        return more
