"""`unisono submit`: a recipe as a SLURM job: a script to read, submitted, followed.

    unisono submit r2 --nodes 1 --ranks-per-node 4 --time 1:00:00 --dry-run

The options are those of `unisono train` and those of the job.
"""

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from unisono.cli.common.trust_option import TrustOption, confirm_trust
from unisono.cli.train import Options, given_options, note_of_job
from unisono.errors import UserError
from unisono.files import check_entry, expand_user, read_file, write_file
from unisono.launch.slurm.options import JobOptions
from unisono.launch.slurm.quoting import as_path, check_plain
from unisono.safe_print import print

if TYPE_CHECKING:
    from unisono.cli.common.submission import Submission

_NOTHING, _PLAIN = Options(), JobOptions()
_JOB, _HERE = Group("The job", sort_key=-1), Group("Here", sort_key=-2)
MADE_BY = b"# Made by: unisono submit"
_MOST_SCRIPT_BYTES = 1 << 20


def submit(
    recipe: str = "",
    /,
    options: Annotated[Options, Parameter(name="*")] = _NOTHING,  # type: ignore[valid-type]
    job: Annotated[JobOptions, Parameter(name="*", group=_JOB, negative="", show_default=False)] = _PLAIN,
    *,
    dry_run: Annotated[
        bool,
        Parameter(help="Print the script, and do nothing else: run no code, fetch no data.", negative="", group=_HERE),
    ] = False,
    follow: Annotated[
        bool, Parameter(help="Show states and output until the job ends.", negative="", group=_HERE)
    ] = False,
    poll_s: Annotated[float, Parameter(help="Seconds between queries to SLURM.", group=_HERE)] = 2.0,
    script: Annotated[str, Parameter(help="Write the script here; NAME.sbatch if empty.", group=_HERE)] = "",
    trust: TrustOption = False,
) -> None:
    """Train a recipe as a SLURM job.

    The script is written beside you, submitted, and the job's number is shown. Before the time limit, and when the job
    is preempted, the ranks save a snapshot, and the job is queued again and goes on. With --follow the exit code is
    the job's.

    Parameters
    ----------
    recipe
        A TOML file, or the name of a bundled recipe (r2). Options given here override it.
    """
    from unisono.cli.common.submission import Submission
    from unisono.launch.slurm import client

    if poll_s <= 0:
        raise UserError(f"--poll-s is {poll_s:g}", hint="give a number above 0")
    asked = Submission(recipe, given_options(options), job, trusted=trust, dry_run=dry_run)
    if not dry_run and confirm_trust(asked.trust, asked.as_in_job):
        asked = replace(asked, trusted=True)
    text = asked.script()
    gpus = note_of_job(getattr(options, "ranks", None), asked.recipe, job.sbatch)
    for note in (gpus, note_of_venv(job.venv), asked.mpi_note):
        if note:
            print(note, file=sys.stderr, flush=True)
    if dry_run:
        if asked.code:
            print(note_of_code(asked), file=sys.stderr, flush=True)
        elif asked.data_away and not job.mem:
            print(note_of_data(asked.as_in_job.data.name), file=sys.stderr, flush=True)
        print(text, end="")
        return
    unanswered: client.NoAnswer | None = None
    if client.available():
        try:
            if unclear := asked.check_cluster():
                print(f"Note: {unclear}", file=sys.stderr, flush=True)
        except client.NoAnswer as error:
            unanswered = error
    path = expand_user(check_plain("--script", script) or f"{asked.name}.sbatch")
    write(path, text)
    for file in (job.output, job.error):
        make_folder(file)
    print(f"Written: {path}", flush=True)
    later = f"sbatch {shlex.quote(as_path(str(path)))}"
    if not client.available():
        raise UserError(
            "there is no SLURM on this machine (sbatch is not on PATH): the script was written, nothing was submitted",
            hint=f"on a login node: {later}",
        )
    if unanswered is not None:
        left = "the script was written, nothing was submitted"
        raise client.NoAnswer(unanswered.reason, left=left, hint=f"{client.PING_HINT}; later: {later}")
    number = client.submit(path)
    cluster = number.partition("@")[2]
    listing = f"unisono jobs --clusters {cluster}" if cluster else "unisono jobs"
    print(f"Submitted: job {number} ({asked.name}); {listing} lists it, unisono cancel {number} ends it", flush=True)
    if follow:
        _follow(number, poll_s)


def note_of_code(asked: "Submission") -> str:
    """What a dry run leaves open, because it would have to run code."""
    memory = "" if asked.job.mem else ", and the memory of the job is not estimated: the script has no --mem"
    note = (
        f"Note: {', '.join(map(repr, asked.code))} was not run, so it is not checked{memory}; unisono submit does that."
    )
    if asked.trusted or not (untrusted := asked.trust.untrusted(asked.as_in_job)):
        return note
    return "\n".join([note, "Note: the job needs --trust, or your yes, to run", *untrusted])


def note_of_data(data: str) -> str:
    """What a dry run leaves open, because it would have to fetch data."""
    return (
        f"Note: {data} is not here, and a dry run fetches nothing, so the memory of the job is not estimated: the "
        "script has no --mem; unisono submit fetches the data and does that."
    )


def note_of_venv(venv: str) -> str:
    """What to say of a virtual environment that is not here; it may be where the job runs."""
    found = f"{venv}/bin/activate"
    if not venv or Path(found).exists():
        return ""
    return f"Note: there is no {found} here (--venv): the job fails at its start unless its nodes have one."


def write(path: Path, text: str) -> None:
    """Replaces a script of ours, nothing else; the new one is whole, or the old one stays."""
    try:
        check_entry(path, "file")
        if path.exists() and MADE_BY not in read_file(path, _MOST_SCRIPT_BYTES, follow_links=False):
            raise UserError(f"{path} exists and is no script of unisono submit's", hint="give another: --script FILE")
        write_file(path, text)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}", hint="give a place with --script") from None


def make_folder(file: str) -> None:
    """Makes the directory of an output file: without it SLURM ends the job without a message."""
    folder = Path(file).parent
    if "%" in str(folder):
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be made: {error.strerror}", hint="give another --output or --error") from None


def _follow(number: str, poll_s: float) -> None:
    from unisono.launch.slurm.job_monitor import follow

    def say(text: str) -> None:
        print(f"unisono: {text}", file=sys.stderr, flush=True)

    try:
        code = follow(number, lambda line: print(line, flush=True), say, poll_s)
    except KeyboardInterrupt:
        say(f"job {number} goes on; unisono cancel {number} ends it")
        raise
    sys.exit(code)
