"""run: N processes on this machine, with no MPI and no torch.

The one idea: make the shared memory, fork a child per rank, watch them. The first that fails ends the rest, and its
error is raised here, once. A forked child costs a millisecond and starts with everything the parent imported. Where
forking is unsafe (torch's thread pools do not survive it, and a child that uses them hangs) ranks are fresh
interpreters instead, which import the function by name.

    results = unisono.run(work, ranks=4)         # work(world) on each rank; results in rank order

Limits: ranks write to the same terminal; their lines may mix.
"""

import json
import os
import selectors
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from unisono.arena.segment import Segment
from unisono.comm.base import DEFAULT_TIMEOUT_S
from unisono.comm.shm import ShmCommunicator, ShmPlan
from unisono.errors import RankFailed, UnisonoError, UserError, unknown_name
from unisono.launch import children, values
from unisono.world import World

STARTS = ("auto", "fork", "fresh")
_REPORT, _RESULT, _FAILURE = b"~", b"=", b"!"


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
    if ranks < 1:
        raise UserError(f"ranks is {ranks}", hint="give 1 or more")
    if start not in STARTS:
        raise unknown_name("start", start, STARTS)
    reference = None
    if start == "fresh" or (start == "auto" and torch_threads_running()):
        reference = _reference(work)
    segment = Segment.create(ShmPlan(ranks).nbytes)
    crew = _Crew(ranks, on_report)
    try:
        for rank in range(ranks):
            if reference is None:
                crew.start(rank, partial(serve, work, segment, rank, ranks, timeout_s))
            else:
                job = {"work": reference, "segment": segment.fd, "rank": rank, "ranks": ranks, "timeout_s": timeout_s}
                crew.start(rank, partial(_become_fresh, job))
        return crew.results()
    finally:
        crew.close()
        segment.close()


def serve(work: Callable[[World], Any], segment: Segment, rank: int, ranks: int, timeout_s: float, sink: int) -> int:
    """The life of one rank: join, work, tell the parent over `sink`; the exit code.

    A line for each thing told: a mark (what kind it is) and JSON.
    """
    with open(sink, "wb", buffering=0) as pipe:

        def tell(mark: bytes, value: Any) -> None:
            line = memoryview(mark + values.pack(value) + b"\n")
            while line:
                line = line[pipe.write(line) :]

        try:
            with World(ShmCommunicator(segment, rank, ranks, timeout_s), partial(tell, _REPORT)) as world:
                tell(_RESULT, work(world))
            return 0
        except UnisonoError as error:
            tell(_FAILURE, f"{error}{_user_line(error)}")
            return error.exit_code
        except BaseException:
            tell(_FAILURE, traceback.format_exc())
            return 1


class _Crew:
    """The children of one `run`: a process, a pipe for what it tells and a pidfd for its end, per rank."""

    def __init__(self, ranks: int, on_report: Callable[[int, Any], None]) -> None:
        self._on_report = on_report
        self._pids: dict[int, int] = {}
        self._unread = [b""] * ranks
        self._answers: list[tuple[bytes, Any] | None] = [None] * ranks
        self._selector = selectors.DefaultSelector()

    def start(self, rank: int, body: Callable[[int], int]) -> None:
        source, sink = os.pipe()
        try:
            self._pids[rank] = pid = children.fork_child(lambda: body(sink))
        finally:
            os.close(sink)
        os.set_blocking(source, False)
        self._selector.register(source, selectors.EVENT_READ, ("answer", rank))
        self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, ("end", rank))

    def results(self) -> list[Any]:
        """Waits for all; raises `RankFailed` for the first that did not end well."""
        while self._pids:
            # Answers before ends: a rank that wrote and ended at once is judged by what it wrote.
            for key, _ in sorted(self._selector.select(), key=lambda event: event[0].data):
                what, rank = key.data
                if what == "answer":
                    if not self._read(key.fd, rank):
                        self._forget(key.fd)
                elif rank in self._pids:
                    self._forget(key.fd)
                    _, status = os.waitpid(self._pids.pop(rank), 0)
                    self._judge(rank, status)
        return [answer[1] for answer in self._answers if answer is not None]

    def _judge(self, rank: int, status: int) -> None:
        for key in list(self._selector.get_map().values()):
            if key.data == ("answer", rank):
                while self._read(key.fd, rank):
                    pass
        mark, value = self._answers[rank] or (b"", None)
        if mark == _FAILURE:
            raise RankFailed(rank, str(value), exit_code=os.waitstatus_to_exitcode(status))
        if status or not mark:
            quiet = "" if status else " and gave no result"
            raise RankFailed(rank, children.how_it_ended(status) + quiet)

    def _read(self, fd: int, rank: int) -> bool:
        """Takes what is there; False when nothing is, or ever will be."""
        try:
            data = os.read(fd, 1 << 20)
        except BlockingIOError:
            return False
        *lines, self._unread[rank] = (self._unread[rank] + data).split(b"\n")
        for line in lines:
            mark, value = line[:1], values.unpack(line[1:])
            if mark == _REPORT:
                self._on_report(rank, value)
            else:
                self._answers[rank] = mark, value
        return bool(data)

    def _forget(self, fd: int) -> None:
        self._selector.unregister(fd)
        os.close(fd)

    def close(self) -> None:
        """Ends whoever still lives and closes everything."""
        children.end(self._pids.values())
        for key in list(self._selector.get_map().values()):
            self._forget(key.fd)
        self._selector.close()


def torch_threads_running() -> bool:
    """Whether torch started threads in this process that a forked child would wait for in vain.

    Counts threads that carry the process's own name (a pool's do; ZeroMQ's in a notebook do not) or torch's, less
    Python's and those of BLAS, which are restarted after a fork.
    """
    if "torch" not in sys.modules:
        return False
    import threading

    from threadpoolctl import threadpool_info

    own = Path("/proc/self/comm").read_text()
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    blas = sum(pool["num_threads"] - 1 for pool in threadpool_info() if pool["internal_api"] == "openblas")
    found = sum(name == own or name.startswith("pt_") for name in names)
    return bool(found > threading.active_count() + blas)


def _reference(work: Callable[[World], Any]) -> dict[str, str]:
    """How a fresh interpreter finds `work`: its module, or the script, and its name there."""
    module = sys.modules.get(getattr(work, "__module__", "") or "")
    name = getattr(work, "__qualname__", "")
    file = getattr(module, "__file__", None)
    if module is None or file is None or getattr(module, name, None) is not work:
        raise UserError(
            f"{name or work!r} cannot be found by name in a fresh interpreter, "
            "and this process cannot be forked (torch has started threads in it)",
            hint="define it at the top level of a file, or call unisono.run before using torch",
        )
    return {"module": module.__name__, "file": os.path.abspath(file), "name": name}


def _become_fresh(job: dict[str, Any], sink: int) -> int:
    for fd in (job["segment"], sink):
        os.set_inheritable(fd, True)
    spec = json.dumps(job | {"sink": sink, "parent": os.getppid(), "path": sys.path})
    os.execv(sys.executable, [sys.executable, "-m", "unisono.launch.fresh", spec])


def _user_line(error: BaseException) -> str:
    """Where in the caller's own code an error of ours came from."""
    package = str(Path(__file__).parents[1])
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(package)]
    return f"\n({frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
