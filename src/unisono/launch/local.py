"""run: N processes on this machine, with no MPI and no torch.

The one idea: make the shared memory, fork a child per rank, watch them. The first that fails ends the rest, and its
error is raised here, once. A forked child costs a millisecond and starts with everything the parent imported. Where
forking is unsafe (torch's thread pools do not survive it, and a child that uses them hangs) ranks are fresh
interpreters instead, which import the function by name.

    results = unisono.run(work, ranks=4)         # work(world) on each rank; results in rank order

Limits: ranks write to the same terminal; their lines may mix. What a rank itself starts (a subprocess) is its own to
end: only ranks die with the parent. A rank ends like a child of `multiprocessing`: functions registered with `atexit`
do not run, files left open are not flushed.
"""

import json
import math
import os
import selectors
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np

from unisono.arena.segment import Segment
from unisono.comm.base import DEFAULT_TIMEOUT_S
from unisono.comm.shm import ShmCommunicator, ShmPlan
from unisono.errors import RankFailed, UnisonoError, UserError, unknown_name
from unisono.launch import children, values
from unisono.launch.environments import enter_rank
from unisono.world import World

STARTS = ("auto", "fork", "fresh")
_REPORT, _RESULT, _FAILURE = b"~", b"=", b"!"

fresh_import = {"running": False}
"""Whether this process is a rank that imports the file of its function: set by `fresh.py`."""


def run(
    work: Callable[[World], Any],
    ranks: int,
    *,
    start: str = "auto",
    timeout_s: float = DEFAULT_TIMEOUT_S,
    on_report: Callable[[int, Any], None] = lambda rank, value: None,
) -> list[Any]:
    """Calls `work(world)` in `ranks` processes; what each returned, in rank order. `RankFailed` if one fails.

    start: "fork", "fresh" (a new interpreter per rank; `work` must be importable), or "auto": fork unless torch has
    already started threads in this process. timeout_s: how long ranks wait for each other. on_report(rank, value) is
    called here for every `world.report(value)`, in the order of each rank.
    """
    _check(work, ranks, start, timeout_s)
    threads = start != "fresh" and torch_threads_running()
    if threads and start == "fork":
        raise UserError(
            "torch has started threads in this process: a forked rank that uses torch would hang",
            hint='use start="auto" or "fresh", or call unisono.run before using torch',
        )
    reference = _reference(work, threads) if threads or start == "fresh" else None
    if threads:
        warnings.warn(
            "torch has started threads in this process, so ranks are fresh interpreters: they import the file of "
            f"{reference['name'] if reference else work} anew and do not see what was changed here since",
            stacklevel=2,
        )
    with closing(Segment.create(ShmPlan(ranks).nbytes)) as segment, closing(_Crew(ranks, on_report)) as crew:
        for rank in range(ranks):
            if reference is None:
                crew.start(rank, partial(serve, work, segment, rank, ranks, timeout_s))
            else:
                job = {"work": reference, "segment": segment.fd, "rank": rank, "ranks": ranks, "timeout_s": timeout_s}
                crew.start(rank, partial(_become_fresh, job))
        return crew.results()


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
    with open(sink, "wb", buffering=0) as pipe:

        def tell(mark: bytes, value: Any) -> None:
            """A line for each thing told: a mark (what kind it is) and JSON."""
            line = memoryview(mark + values.pack(value) + b"\n")
            while line:
                line = line[pipe.write(line) :]

        try:
            enter_rank(rank, ranks)
            with World(ShmCommunicator(segment, rank, ranks, timeout_s), partial(tell, _REPORT)) as world:
                result = work(world)
            for thread in threading.enumerate():  # as Python itself does at the end of a program
                if thread is not threading.current_thread() and not thread.daemon:
                    thread.join()
            tell(_RESULT, result)
            return 0
        except UnisonoError as error:
            tell(_FAILURE, [type(error).__name__, f"{error}{_user_line(error)}"])
            return error.exit_code
        except BaseException as error:
            tell(_FAILURE, [type(error).__name__, traceback.format_exc()])
            return 1


@final
class _Crew:
    """The children of one `run`: a process, a pipe for what it tells and a pidfd for its end, per rank."""

    def __init__(self, ranks: int, on_report: Callable[[int, Any], None]) -> None:
        self._on_report = on_report
        self._pids: dict[int, int] = {}
        self._pidfds: dict[int, int] = {}
        self._pipes: dict[int, int] = {}
        self._unread = [bytearray() for _ in range(ranks)]
        self._answers: list[tuple[bytes, Any] | None] = [None] * ranks
        self._selector = selectors.DefaultSelector()

    def start(self, rank: int, body: Callable[[int], int]) -> None:
        source, sink = os.pipe()
        try:
            with children.signals_held():
                self._pids[rank] = pid = children.fork_child(lambda: body(sink))
                self._pidfds[rank] = os.pidfd_open(pid)
                self._pipes[rank] = source
        finally:
            os.close(sink)
            if rank not in self._pipes:
                os.close(source)
        os.set_blocking(source, False)
        self._selector.register(source, selectors.EVENT_READ, ("answer", rank))
        self._selector.register(self._pidfds[rank], selectors.EVENT_READ, ("end", rank))

    def results(self) -> list[Any]:
        """Waits for all; raises `RankFailed` for the first that did not end well."""
        while self._pids:
            # Answers before ends: a rank that wrote and ended at once is judged by what it wrote.
            for key, _ in sorted(self._selector.select(), key=lambda event: event[0].data):
                what, rank = key.data
                if what == "answer":
                    if not self._read(rank):
                        self._selector.unregister(key.fd)
                elif rank in self._pids:
                    self._selector.unregister(key.fd)
                    with children.signals_held():
                        status = children.reap(self._pids.pop(rank))
                    self._judge(rank, status)
        return [answer[1] for answer in self._answers if answer is not None]

    def _judge(self, rank: int, status: int) -> None:
        while self._read(rank):
            pass
        mark, value = self._answers[rank] or (b"", ("", ""))
        if mark == _FAILURE:
            kind, report = value
            raise RankFailed(rank, report, kind=kind, exit_code=max(1, os.waitstatus_to_exitcode(status)))
        if status or not mark:
            quiet = "" if status else " and gave no result"
            raise RankFailed(rank, children.how_it_ended(status) + quiet)

    def _read(self, rank: int) -> bool:
        """Takes what is there; False when nothing is, or ever will be."""
        try:
            data = os.read(self._pipes[rank], 1 << 20)
        except BlockingIOError:
            return False
        unread = self._unread[rank]
        # Only what is new is searched: a result of many megabytes comes in pieces of 64 KiB.
        seen = len(unread)
        unread += data
        while (stop := unread.find(b"\n", seen)) >= 0:
            mark, value = bytes(unread[:1]), values.unpack(bytes(unread[1:stop]))
            del unread[: stop + 1]
            seen = 0
            if mark == _REPORT:
                self._on_report(rank, value)
            else:
                self._answers[rank] = mark, value
        return bool(data)

    def close(self) -> None:
        """Ends whoever still lives and closes everything, whatever happens meanwhile."""
        try:
            for rank in self._pids.keys() - self._pidfds.keys():  # no descriptor was left for its pidfd
                os.kill(self._pids[rank], signal.SIGKILL)
                children.reap(self._pids.pop(rank))
            children.end({pid: self._pidfds[rank] for rank, pid in self._pids.items()})
        finally:
            self._selector.close()
            for fd in [*self._pidfds.values(), *self._pipes.values()]:
                os.close(fd)


def torch_threads_running() -> bool:
    """Whether torch started threads in this process that a forked child would wait for in vain.

    Looks for threads that are neither Python's, nor ZeroMQ's (a notebook has those), nor of a BLAS that is restarted
    after a fork. When in doubt, True: a fresh interpreter always works.
    """
    if "torch" not in sys.modules:
        return False
    # OpenBLAS ends its threads before a fork and starts them again when it needs them: those that are left after one
    # are others', whatever their number.
    with children.signals_held():
        children.reap(children.fork_child(lambda: 0))
    known = {thread.native_id for thread in threading.enumerate()} | {os.getpid()}
    tasks = [path for path in Path("/proc/self/task").iterdir() if int(path.name) not in known]
    return any(not (path / "comm").read_text().startswith("ZMQ") for path in tasks)


def _reference(work: Callable[[World], Any], threads: bool) -> dict[str, str]:
    """How a fresh interpreter finds `work`: its module, or the script, and its name there."""
    module = sys.modules.get(getattr(work, "__module__", "") or "")
    name = getattr(work, "__qualname__", "")
    file = getattr(module, "__file__", None)
    if module is None or file is None or not os.path.exists(file) or getattr(module, name, None) is not work:
        why = ", and this process cannot be forked: torch has started threads in it" if threads else ""
        raise UserError(
            f"{name or work!r} cannot be found by name in a fresh interpreter{why}",
            hint="define it at the top level of a file"
            + (", or call unisono.run before using torch" if threads else ""),
        )
    return {"module": module.__name__, "file": os.path.abspath(file), "name": name}


def _become_fresh(job: dict[str, Any], sink: int) -> int:
    for fd in (job["segment"], sink):
        os.set_inheritable(fd, True)
    spec = json.dumps(job | {"sink": sink, "parent": os.getppid(), "path": sys.path, "argv": sys.argv})
    os.execv(sys.executable, [sys.executable, "-m", "unisono.launch.fresh", spec])


def _user_line(error: BaseException) -> str:
    """Where in the caller's own code an error of ours came from."""
    package = str(Path(__file__).parents[1])
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(package)]
    return f"\n({frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
