"""What a SLURM job is asked for, besides what it trains: nodes, ranks, time, memory, how ranks are started.

The one idea: a frozen record whose fields are options of `unisono submit`; what contradicts itself is refused here,
before anything is written or submitted.

    check(JobOptions(nodes=2, ranks_per_node=2, time="30"))

Limits: whether the cluster has such nodes is SLURM's to say, when the job is submitted.
"""

import re
import shlex
from dataclasses import dataclass, fields
from typing import final

from unisono.errors import UserError, unknown_name
from unisono.launch.machine_options import MOST_JOIN_S
from unisono.launch.slurm.quoting import is_plain

LAUNCHERS = ("auto", "unisono", "srun", "mpirun", "torchrun", "accelerate")
PLUGINS = ("auto", "pmix", "pmi2", "none")
USUAL_WARNING_S, LEAST_WARNING_S = 120, 10
EARLIEST_S = 60
"""So much earlier than it was told to SLURM may warn."""

MOST_NAME_BYTES = 200
"""Of a job. File systems take 255, and its number or .sbatch is added."""


@final
@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """The options of `unisono submit` that are not the recipe's."""

    nodes: int = 1
    """Machines. [default: 1]"""

    ranks_per_node: int = 0
    """Ranks on each of them; 0: the recipe's ranks, spread over the nodes."""

    launcher: str = "auto"
    """unisono: one task a node starts its ranks, and those that die are taken over; srun, mpirun: ranks of MPI;
    torchrun, accelerate: ranks of torch. auto: unisono on one node; srun with MPI, else torchrun, on several.
    [default: auto]"""

    mpi: str = "auto"
    """For srun: pmix (Open MPI), pmi2 (MPICH), or none, for --transport gloo; auto: what the MPI here
    needs. [default: auto]"""

    interface: str = ""
    """The network interface between nodes, such as ib0; the one on the way to the first node if empty."""

    join_timeout: float = 0.0
    """Seconds within which all ranks must have come; 0: 60, as for unisono train."""

    job_name: str = ""
    """The job's name; the recipe's if empty."""

    time: str = ""
    """Time limit as SLURM has it: minutes, or hours:minutes:seconds, or days-hours; the partition's if empty."""

    partition: str = ""
    """Where to run; the cluster's default if empty."""

    account: str = ""
    """Whom to charge."""

    mem: str = ""
    """Memory of each node, such as 4G; estimated from the recipe if empty."""

    output: str = ""
    """Where the job's output goes; slurm-%j.out if empty, slurm-%A_%a.out for arrays. Restarts append."""

    error: str = ""
    """Where its errors go; to its output if empty."""

    array: str = ""
    """Run it several times, as 0-3 or 1,2,5%2 says: a run directory for each, and --array-option differs."""

    array_option: str = "seed"
    """The option of the recipe that is each array task's number. [default: seed]"""

    warn_s: int = 0
    """Seconds before the time limit at which the ranks are told to save a snapshot and end, to be queued again; 0: 120,
    or less if the time limit is short."""

    max_requeues: int = 100
    """How often the job may be queued again, after its time limit or a preemption, and go on; 0: never.
    [default: 100]"""

    venv: str = ""
    """Virtual environment to activate; this one if empty."""

    module: tuple[str, ...] = ()
    """Module to load first, as module load does; may be given several times."""

    setup: tuple[str, ...] = ()
    """A line of shell to run before the training; may be given several times."""

    sbatch: tuple[str, ...] = ()
    """Another option of sbatch's, such as --constraint=avx512; may be given several times."""


def check(options: JobOptions) -> None:
    """Refuses what contradicts itself."""
    for name, least in (("nodes", 1), ("ranks_per_node", 0), ("warn_s", 0), ("max_requeues", 0), ("join_timeout", 0)):
        if not getattr(options, name) >= least:  # nor is nan
            option = "--" + name.replace("_", "-")
            raise UserError(f"{option} is {getattr(options, name)}", hint=f"give {least} or more")
    if options.join_timeout > MOST_JOIN_S:
        raise UserError(f"--join-timeout is {options.join_timeout:g}", hint=f"give seconds, at most {MOST_JOIN_S:g}")
    if options.launcher not in LAUNCHERS:
        raise unknown_name("--launcher", options.launcher, LAUNCHERS)
    if options.mpi not in PLUGINS:
        raise unknown_name("--mpi", options.mpi, PLUGINS)
    if options.mpi != "auto" and options.launcher not in ("auto", "srun"):
        raise UserError(f"--mpi {options.mpi} with --launcher {options.launcher}", hint="--mpi is an option of srun's")
    if not options.interface.isprintable() or " " in options.interface:
        raise UserError(f"--interface is {options.interface!r}", hint="a name such as ib0: `ip address` shows them")
    if options.array and not re.fullmatch(r"\d+(-\d+(:\d+)?)?(,\d+(-\d+(:\d+)?)?)*(%\d+)?", options.array, re.ASCII):
        raise UserError(f"--array is {options.array!r}", hint="give numbers such as 0-3, 1,2,5 or 0-9%2")
    if options.mem and not re.fullmatch(r"\d+[KMGT]?", options.mem, re.IGNORECASE | re.ASCII):
        raise UserError(f"--mem is {options.mem!r}", hint="give a size such as 800M or 4G")
    check_name(options.job_name)
    for name in options.module:
        if not name or name.startswith("-"):
            raise UserError(
                f"--module is {name!r}", hint=f"a name such as gcc/12; or --setup {shlex.quote(f'module load {name}')}"
            )
    for field in fields(options):
        value = getattr(options, field.name)
        for text in value if isinstance(value, tuple) else (value,) if isinstance(value, str) else ():
            # Every one of them is part of a line of the script: after a line break it would be another directive.
            if not is_plain(text):
                option = "--" + field.name.replace("_", "-")
                hint = f"give {option} once for each line" if isinstance(value, tuple) else "leave line breaks out"
                raise UserError(f"{option} is {text!r}: more than a line of plain text", hint=hint)
    for line in options.sbatch:
        sbatch_words(line)
    limit_s = seconds(options.time)
    if options.max_requeues and options.warn_s and limit_s and limit_s < options.warn_s + EARLIEST_S:
        raise UserError(
            f"--time {options.time} is {limit_s} s, and ranks stop {options.warn_s} s (--warn-s) before its end: SLURM "
            f"may warn {EARLIEST_S} s earlier still, so nothing would be trained",
            hint="give more --time, or a smaller --warn-s; or --max-requeues 0",
        )


def check_name(name: str) -> None:
    """Refuses a job's name that is no name of files as well."""
    if len(name.encode(errors="surrogatepass")) > MOST_NAME_BYTES:
        raise UserError(
            f"the job's name is longer than {MOST_NAME_BYTES} bytes: {name[:40]!r}...",
            hint="files are named after it: give a shorter one: --job-name NAME",
        )
    if "/" in name or name.startswith("-"):
        raise UserError(
            f"the job's name is {name!r}",
            hint="files are named after it: give one without / that does not begin with a dash: --job-name NAME",
        )


def sbatch_words(line: str) -> list[str]:
    """One option of sbatch's, with its value if that is a word of its own; `UserError` if it is anything else."""
    hint = "one option as sbatch has it, once for each: --sbatch=--constraint=avx512"
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UserError(f"--sbatch {line!r}: {str(error).lower()}", hint=hint) from None
    name = words[0].partition("=")[0] if words else ""
    if len(words) > 2 or not re.fullmatch(r"-\w.*|--\w.*", name) or (len(words) == 2 and words[1].startswith("-")):
        raise UserError(f"--sbatch {line!r} is no option", hint=hint)
    # sbatch takes the beginning of a name for the whole.
    if len(name) > 4 and "--comment".startswith(name):
        raise UserError(f"--sbatch {line!r}: unisono jobs knows its jobs by their comment", hint="use --job-name")
    if len(name) > 3 and "--wrap".startswith(name):
        raise UserError(f"--sbatch {line!r}: the job would be another program", hint="use --setup for a line of shell")
    return words


def warning_s(options: JobOptions) -> int:
    """How long before the time limit ranks are warned."""
    if options.warn_s:
        return options.warn_s
    limit_s = seconds(options.time)
    if limit_s is None:
        return USUAL_WARNING_S
    return max(LEAST_WARNING_S, min(USUAL_WARNING_S, (limit_s - EARLIEST_S) // 2))


def seconds(time: str) -> int | None:
    """SLURM's way to write a time limit, in seconds; None if there is none.

    >>> seconds("90"), seconds("1:30:00"), seconds("2-12")
    (5400, 5400, 216000)
    """
    if time in ("", "UNLIMITED", "INFINITE", "0"):
        return None
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", time, re.ASCII)
    if match is None:
        raise UserError(f"--time is {time!r}", hint="give minutes, hours:minutes:seconds or days-hours")
    days, first, second, third = (int(part or 0) for part in match.groups())
    if match[1] is not None or match[4] is not None:
        return ((days * 24 + first) * 60 + second) * 60 + third
    return first * 60 + second  # minutes, minutes:seconds
