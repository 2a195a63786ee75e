"""Whether this machine lets so many ranks run: open files, processes, memory; looked at before anything is made.

The one idea: what a run takes of each is estimated from its ranks and threads alone, and compared with what the limits
leave. A soft limit is raised as far as is needed; what even the hard one does not allow is a `UserError` that names it.

    check_limits(4, threads=2)

Limits: estimates of memory are the least that ranks were seen to take for themselves; what they share, and what a
network needs, is looked at where it is known (`arena/memory/segment.py`). Others may take what was free a moment ago:
then `naming_shortage` says what was short.
"""

import errno
import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from unisono.errors import UserError
from unisono.python_error_advice import is_thread_shortage
from unisono.resources import available_bytes, group_task_room, readable_bytes, usable_cores
from unisono.user_code.tracebacks import own_frame

MIB = 2**20
RANK_BYTES = 2 * MIB
"""The least that a forked rank takes for itself."""
RANK_FILES = 6
"""Descriptors that a rank costs its parent: answers, its end, its stack; wake-ups and locks of asynchronous ranks."""
SPARE_FILES, SPARE_TASKS = 48, 8
"""For the run directory, the live page, who writes snapshots, a rank's replacement."""
CROWD = 16
"""More ranks for each core are said to be many."""
MOST_PER_CORE, MOST_ON_FEW_CORES, MOST_RANKS = 256, 512, 4096
"""More for each core, if there are more than that many in all, are refused, and so are more on one machine: those that
have started wait for the others on their cores, the last ones take minutes to start, and nothing else gets a turn."""
_PROC = Path("/proc")
_HINTS = {
    errno.EMFILE: "this process may not open more files: raise its limit (ulimit -n), or use fewer ranks",
    errno.ENFILE: "the machine has no more open files (fs.file-max): end other programs, or use fewer ranks",
    errno.EAGAIN: "no more processes or threads may be started (ulimit -u, pids.max of the container or job): use "
    "fewer ranks or threads, or raise the limit",
    errno.ENOMEM: "there is not enough memory: use fewer ranks or a smaller batch, or ask for more",
}


def check_limits(
    ranks: int, *, threads: int = 1, rank_bytes: int = RANK_BYTES, rank_files: int = RANK_FILES, option: str = "--ranks"
) -> None:
    """A `UserError` if so many ranks cannot run here. threads: of each. option: what the user gave."""
    cores = usable_cores()
    usual = f"give fewer: {cores}, one for each core, {'are' if cores > 1 else 'is'} usual here"
    most = max(cores, min(MOST_RANKS, max(MOST_ON_FEW_CORES, MOST_PER_CORE * cores)))
    if ranks > most:
        raise UserError(f"{option} {ranks} for {cores} core{'s' * (cores > 1)}: more than {most:,}", hint=usual)
    needed_bytes, free = ranks * rank_bytes, available_bytes()
    if needed_bytes > free:
        raise UserError(
            f"{option} {ranks}: the processes alone need about {readable_bytes(needed_bytes)} of memory, "
            f"{readable_bytes(free)} are available",
            hint=usual,
        )
    tasks = ranks * max(1, threads) + SPARE_TASKS
    room, limit = task_room(tasks)
    if tasks > room:
        each = f" with {threads} threads each" if threads > 1 else ""
        raise UserError(
            f"{option} {ranks}{each} needs about {tasks} processes and threads, {room} more may be started ({limit})",
            hint="use fewer ranks or threads, or raise that limit",
        )
    files = _open_files() + ranks * rank_files + SPARE_FILES
    if files > (most_files := _raise_soft_limit(resource.RLIMIT_NOFILE, files)):
        raise UserError(
            f"{option} {ranks} needs about {files} open files, and this process may have {most_files} (ulimit -Hn)",
            hint=f"use fewer ranks, or raise the limit: ulimit -n {files}",
        )


def check_temporary_directory() -> None:
    """An `OSError` of Python's if there is none: what runs say is kept there while they last."""
    tempfile.gettempdir()


def crowd_note(ranks: int, threads: int = 1) -> str:
    """What to say of far more ranks than cores; empty if there is nothing to say."""
    cores = usable_cores()
    if ranks * threads <= CROWD * cores:
        return ""
    sooner = max(1, cores // threads)
    return (
        f"Note: {ranks} ranks x {threads} thread{'s' * (threads > 1)} share {cores} core{'s' * (cores > 1)}: they take "
        f"turns, and each step waits for all of them. --ranks {sooner} would be faster."
    )


def task_room(needed: int) -> tuple[int, str]:
    """How many processes and threads may still be started, and what limits that. Only as exact as `needed` needs."""
    everybody = _all_tasks()
    rooms = [(group_task_room(), "pids.max of the container or job")]
    with suppress(OSError, ValueError):
        rooms.append((_kernel_limit("threads-max") - everybody, "kernel.threads-max"))
    # To count tasks takes long where there are many: not if there is room for everybody's.
    with suppress(OSError, ValueError):
        most = _kernel_limit("pid_max")  # of a container, perhaps, whereas `everybody` are those of the machine
        rooms.append((most - (everybody if most >= needed + everybody else _count_tasks()), "kernel.pid_max"))
    if os.geteuid() != 0:  # root is not bound by it
        most = _raise_soft_limit(resource.RLIMIT_NPROC, needed + everybody)
        used = everybody if most >= needed + everybody else _count_tasks(os.getuid())
        rooms.append((most - used, "ulimit -u"))
    room, limit = min(((room, limit) for room, limit in rooms if room is not None), default=(needed, ""))
    return max(0, room), limit


@contextmanager
def naming_shortage(what: str) -> Iterator[None]:
    """An `OSError` for want of files, processes or memory becomes a `UserError` that says what could not be done."""
    try:
        yield
    except OSError as error:
        if not (hint := shortage_hint(error)):
            raise
        raise UserError(f"{what}: {error.strerror}", hint=hint) from None


def as_shortage(error: BaseException) -> UserError | None:
    """What a rank tells of its end for want of files, processes or memory; None if it was something else. Of the user's
    own code, too, it is None: there a traceback says more."""
    if own_frame(error) is not None:
        return None
    if isinstance(error, MemoryError):
        return UserError("there is not enough memory for a rank", hint=_HINTS[errno.ENOMEM])
    if is_thread_shortage(error):
        return UserError("a rank could not start a thread", hint=_HINTS[errno.EAGAIN])
    if isinstance(error, OSError) and (hint := shortage_hint(error)):
        return UserError(f"a rank could not go on: {error.strerror}", hint=hint)
    return None


def shortage_hint(error: OSError) -> str:
    """What to do about it; empty if it is no shortage."""
    return _HINTS.get(error.errno or 0, "")


def _raise_soft_limit(kind: int, needed: int) -> int:
    """What this process may have of it, raised to `needed` if the hard limit lets it."""
    soft, hard = resource.getrlimit(kind)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return max(needed, soft)
    wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    try:
        resource.setrlimit(kind, (wanted, hard))
    except (OSError, ValueError):  # a sandbox may forbid it
        return soft
    return wanted


def _open_files() -> int:
    try:
        return len(os.listdir(_PROC / "self/fd"))
    except OSError:
        return SPARE_FILES


def _all_tasks() -> int:
    """Of the machine: the second number of '3/517'."""
    try:
        return int((_PROC / "loadavg").read_text(encoding="utf-8").split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return 0


def _kernel_limit(name: str) -> int:
    return int((_PROC / "sys/kernel" / name).read_text(encoding="utf-8"))


def _count_tasks(user: int | None = None) -> int:
    """Processes and threads that /proc shows, which are those of this container; of one user, if given."""
    count = 0
    for process in _PROC.iterdir():
        with suppress(OSError):  # ended meanwhile
            if process.name.isdecimal() and user in (None, process.stat().st_uid):
                count += len(os.listdir(process / "task"))
    return count
