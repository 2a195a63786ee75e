"""run: N processes on this machine, with no MPI and no torch.

The one idea: make the shared memory, fork a child per rank, watch them. The first that fails ends the rest, and its
error is raised here, once. A forked child costs a millisecond and starts with everything the parent imported. Where
forking is unsafe (torch's thread pools do not survive it, and a child that uses them hangs) ranks are fresh
interpreters instead, which import the function by name, or get a copy of it (`function_passing.py`).

    results = unisono.run(work, ranks=4)         # work(world) on each rank; results in rank order

Limits: ranks write to the same terminal; their lines may mix. What a rank itself starts (a subprocess) is its own to
end: only ranks die with the parent. A rank ends like a child of `multiprocessing`: functions registered with `atexit`
do not run, files left open are not flushed.
"""

import json
import math
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from unisono.arena.memory.segment import Segment
from unisono.arena.sync.barrier import Barrier
from unisono.arena.sync.waiting import wait_until
from unisono.comm.base import DEFAULT_TIMEOUT_S
from unisono.comm.shm.communicator import ShmCommunicator
from unisono.comm.shm.memory import ShmPlan
from unisono.environment.os_environ import enter_rank, forget_secret
from unisono.errors import AskedToEnd, UserError, unknown_name
from unisono.launch.function_passing import pack_function
from unisono.launch.launcher_commands import python
from unisono.messages.rank_reports import Report, SharedModel, StopsOnRequest, UserReport
from unisono.os_limits import check_limits, naming_shortage
from unisono.supervise import children
from unisono.supervise.loop_supervisor import LoopSupervisor
from unisono.supervise.processes import ChildExit, ProcessGroup, run_child
from unisono.supervise.signals import stop_requests
from unisono.world import World

PARENT_FILES = 2
"""Descriptors for each rank: what it tells, and its end."""
STARTS = ("auto", "fork", "fresh")
LOOK_S = 0.2
"""How often ranks are looked at once the first has returned."""
TELLING_S = 0.5
"""How long ranks may take, after they have met, until all have told that they share a model."""
GONE_S = 0.2
"""How long a thread that is about to end may still be listed."""
_TASKS = Path("/proc/self/task")
_EXITING = 0x4
"""Of a task's flags in /proc, as the kernel counts them: it has ended, and is listed until it has a core once more."""

fresh_import = {"running": False}
"""Whether this process is a rank that imports the file of its function: set by `spawn_entry.py`."""


def run(
    work: Callable[[World], Any],
    ranks: int,
    *,
    start: str = "auto",
    timeout_s: float = DEFAULT_TIMEOUT_S,
    on_report: Callable[[int, Any], None] = lambda rank, value: None,
) -> list[Any]:
    """Calls `work(world)` in `ranks` processes; what each returned, in rank order. `RankFailed` if one fails.

    start: "fork", "fresh" (a new interpreter per rank, which imports `work`, or gets a copy of it, made by cloudpickle,
    if it cannot be imported), or "auto": fork unless torch has already started threads in this process. timeout_s: how
    long ranks wait for each other. on_report(rank, value) is called here for every `world.report(value)`, in the order
    of each rank. `AskedToEnd` if a signal asked for an end and the ranks have left a snapshot: see `unisono.keep`.
    """
    _check(work, ranks, start, timeout_s)
    threads = start != "fresh" and torch_threads_running()
    if threads and start == "fork":
        raise UserError(
            "torch has started threads in this process: a forked rank that uses torch would hang",
            hint='use start="auto" or "fresh", or call unisono.run before using torch',
        )
    check_limits(ranks, rank_files=PARENT_FILES, option="ranks")
    copies, heeds = ExitStack(), ExitStack()
    reference = _reference(work, threads, copies) if threads or start == "fresh" else None
    if threads and reference is not None and "name" in reference:
        warnings.warn(
            "torch has started threads in this process, so ranks are fresh interpreters: they import the file of "
            f"{reference['name']} anew and do not see what was changed here since",
            stacklevel=2,
        )

    def hear(rank: int, message: Report) -> None:
        match message:
            case UserReport(value):
                on_report(rank, value)
            case SharedModel():
                loop_supervisor.attach(message)
            case StopsOnRequest():
                if not loop_supervisor.halts:
                    loop_supervisor.halts = True
                    heeds.enter_context(stop_requests(loop_supervisor.ask_to_halt))

    with (
        copies,
        closing(Segment.create(ShmPlan(ranks).nbytes)) as segment,
        closing(ProcessGroup(hear)) as process_group,
        heeds,
    ):
        loop_supervisor = LoopSupervisor(ranks, segment.words(0, Barrier.words_needed(ranks)))
        for rank in range(ranks):
            with naming_shortage(f"rank {rank} of {ranks} could not be started"):
                if reference is None:
                    process_group.start(rank, partial(serve, work, segment, rank, ranks, timeout_s))
                else:
                    job = {"work": reference, "segment": segment.fd, "rank": rank, "ranks": ranks}
                    process_group.start(rank, partial(_become_fresh, job | {"timeout_s": timeout_s}))
        results: list[Any] = [None] * ranks
        lost: list[ChildExit] = []
        returned: list[int] = []
        asked: list[str] = []

        def judge(ended: ChildExit) -> None:
            if ended.left is not None:
                asked.append(ended.left.snapshot)
            elif loop_supervisor.any and not ended.answered:
                lost.append(ended)
            else:
                results[ended.rank] = ended.check()
                returned.append(ended.rank)

        while process_group.living:
            before = len(lost)
            # No descriptor tells that a rank waits in shared memory for one that has returned: that is looked for.
            found = process_group.poll(LOOK_S if returned and loop_supervisor.any else None)
            if any(not ended.answered for ended in found):
                found += _heard_out(process_group, loop_supervisor)
            for ended in found:
                judge(ended)
            loop_supervisor.check_left(returned, process_group.living)
            if len(lost) > before and process_group.living:
                loop_supervisor.take_over(process_group, judge, timeout_s)
        if asked:
            raise AskedToEnd(asked[0])
        for ended in lost:
            if len(lost) == ranks:
                ended.check()
            warnings.warn(
                f"rank {ended.rank} {children.describe_end(ended.status)}; the others took over", stacklevel=2
            )
        return results


def _heard_out(process_group: ProcessGroup, loop_supervisor: LoopSupervisor) -> list[ChildExit]:
    """A rank has died, and others may be about to tell that they share a model; who ends while they are listened to."""
    ended: list[ChildExit] = []
    deadline = time.monotonic() + TELLING_S
    while not loop_supervisor.any and process_group.living and (left_s := deadline - time.monotonic()) > 0:
        ended += process_group.poll(left_s)
    return ended


def _check(work: Callable[[World], Any], ranks: int, start: str, timeout_s: float) -> None:
    if not isinstance(ranks, int | np.integer) or isinstance(ranks, bool) or ranks < 1:
        raise UserError(f"ranks is {ranks!r}", hint="give a whole number of 1 or more")
    if start not in STARTS:
        raise unknown_name("start", start, STARTS)
    if not isinstance(timeout_s, int | float | np.number) or not 0 < timeout_s < math.inf:
        raise UserError(f"timeout_s is {timeout_s!r}", hint="give seconds, above 0")
    if not callable(work):
        raise UserError(f"work is {work!r}", hint="give a function of one argument, the world")
    if fresh_import["running"]:
        raise UserError(
            "unisono.run was called while a rank imports this file",
            hint="put the call under `if __name__ == '__main__':`, so that only the first process makes it",
        )


def serve(work: Callable[[World], Any], segment: Segment, rank: int, ranks: int, timeout_s: float, sink: int) -> int:
    """The life of one rank: join, work, tell the parent over `sink`; the exit code."""

    def live(report: Callable[[Any], None]) -> Any:
        children.name_rank(rank)
        enter_rank(rank, ranks)
        comm = ShmCommunicator(segment, rank, ranks, timeout_s)
        with World(comm, lambda value: report(UserReport(value)), report) as world:
            return work(world)

    return run_child(live, sink)


def torch_threads_running() -> bool:
    """Whether torch started threads in this process that a forked child would wait for in vain.

    Looks for threads that are neither Python's, nor ZeroMQ's (a notebook has those), nor of a BLAS that is restarted
    after a fork. When in doubt, True: a fresh interpreter always works.
    """
    if "torch" not in sys.modules:
        return False
    # OpenBLAS ends its threads before a fork and starts them again when it needs them: those that are left after one
    # are others', whatever their number.
    with children.defer_signals():
        children.reap(children.fork_child(lambda: 0))
    # Python tells that one of its own has ended a moment before it has.
    return not wait_until(lambda: not _strange_threads(), GONE_S)


def _strange_threads() -> bool:
    known = {thread.native_id for thread in threading.enumerate()} | {os.getpid()}
    for path in _TASKS.iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # ended meanwhile
            name, _, fields = (path / "stat").read_text("utf-8", "replace").partition("(")[2].rpartition(") ")
            if int(path.name) not in known and not name.startswith("ZMQ") and not int(fields.split()[6]) & _EXITING:
                return True
    return False


def _reference(work: Callable[[World], Any], threads: bool, kept: ExitStack) -> dict[str, Any]:
    """How a fresh interpreter finds `work`: its module, or the script, and its name there; or the descriptor of a copy,
    which `kept` closes."""
    module = sys.modules.get(getattr(work, "__module__", "") or "")
    name = getattr(work, "__qualname__", "")
    file = getattr(module, "__file__", None)
    if module is None or file is None or not os.path.exists(file) or getattr(module, name, None) is not work:
        fd = pack_function(work, ", and this process cannot be forked: torch has started threads in it" * threads)
        kept.callback(os.close, fd)
        return {"copy": fd}
    return {"module": module.__name__, "file": os.path.abspath(file), "name": name}


def _become_fresh(job: dict[str, Any], sink: int) -> int:
    for fd in (job["segment"], sink, *([job["work"]["copy"]] if "copy" in job["work"] else [])):
        os.set_inheritable(fd, True)
    spec = json.dumps(job | {"sink": sink, "parent": os.getppid(), "path": sys.path, "argv": sys.argv})
    forget_secret()
    os.execv(sys.executable, python("-m", "unisono.launch.spawn_entry", spec))
