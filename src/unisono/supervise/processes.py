"""ProcessGroup: the children of one run, and what they tell: a process, a pipe and a pidfd for each rank.

The one idea: a child tells its parent messages over a pipe, a line each: reports while it works, then its result or
its failure. The parent polls: it hears what is told, and learns who ended and how. What an end means is for others to
say.

    with closing(ProcessGroup(on_report)) as process_group:
        process_group.start(0, lambda sink: run_child(lambda report: 42, sink))
        while process_group.living: ended = process_group.poll()
"""

import os
import selectors
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from unisono.errors import RESUME_ME, AskedToEnd, RankFailed, UnisonoError
from unisono.messages.packing import pack, unpack
from unisono.messages.rank_reports import Failure, LeftOnRequest, Result
from unisono.os_limits import as_shortage
from unisono.supervise import children
from unisono.user_code.tracebacks import own_traceback, where


def run_child(work: Callable[[Callable[[Any], None]], Any], sink: int) -> int:
    """The life of a child: works, and tells the parent over `sink` what came of it; the exit code."""
    with open(sink, "wb", buffering=0) as pipe:

        def tell(message: Any) -> None:
            line = memoryview(pack(message) + b"\n")
            while line:
                line = line[pipe.write(line) :]

        try:
            result = work(tell)
            for thread in threading.enumerate():  # as Python itself does at the end of a program
                if thread is not threading.current_thread() and not thread.daemon:
                    thread.join()
            tell(Result(result))
            return 0
        except AskedToEnd as asked:
            tell(LeftOnRequest(asked.snapshot))
            return RESUME_ME
        except UnisonoError as error:
            tell(Failure(type(error).__name__, f"{error}{where(error)}", traceback=False, rank=error.named_rank))
            return error.exit_code
        except BaseException as error:
            if shortage := as_shortage(error):
                tell(Failure(type(shortage).__name__, str(shortage), traceback=False))
                return shortage.exit_code
            tell(Failure(type(error).__name__, own_traceback(error), traceback=True))
            return 1


@final
@dataclass(frozen=True)
class ChildExit:
    """A child that is no more."""

    rank: int
    status: int
    """As waitpid gives it."""
    answered: bool
    result: Any
    failure: Failure | None
    left: LeftOnRequest | None = None
    """If it left because it was asked to end."""

    def check(self) -> Any:
        """The result; `RankFailed` if there is none. One that was killed after it had told its result is not missed."""
        exit_code = max(1, os.waitstatus_to_exitcode(self.status))
        if (found := self.failure) is not None:
            facts: dict[str, Any] = {"kind": found.kind, "traceback": found.traceback, "named": found.rank}
            raise RankFailed(self.rank, found.report, exit_code=exit_code, **facts)
        if self.left is not None:
            raise RankFailed(self.rank, self.left.snapshot, kind=AskedToEnd.__name__, exit_code=exit_code)
        if not self.answered:
            quiet = "" if self.status else " and gave no result"
            raise RankFailed(self.rank, children.describe_end(self.status) + quiet)
        return self.result


@final
class _Child:
    def __init__(self, pid: int, source: int) -> None:
        self.pid, self.source = pid, source
        self.pidfd = -1
        self.unread = bytearray()
        self.result: Any = None
        self.failure: Failure | None = None
        self.left: LeftOnRequest | None = None
        self.answered = False


@final
class ProcessGroup:
    """`on_report(rank, value)` is called for everything that a child reports, in the order of each."""

    def __init__(self, on_report: Callable[[int, Any], None], grace_s: float = children.GRACE_S) -> None:
        """grace_s: how long `close` lets those who still live finish."""
        self._on_report, self._grace_s = on_report, grace_s
        self._children: dict[int, _Child] = {}
        self._selector = selectors.DefaultSelector()

    @property
    def living(self) -> set[int]:
        """The ranks whose process has not ended, as far as is known."""
        return set(self._children)

    def pid(self, rank: int) -> int:
        return self._children[rank].pid

    def start(self, rank: int, body: Callable[[int], int]) -> None:
        """A child that runs body(sink), where `sink` is the pipe's end for `answer`; if that fails there is none."""
        source, sink = os.pipe()
        try:
            with children.defer_signals():
                self._watch(rank, _Child(children.fork_child(lambda: body(sink)), source))
        finally:
            os.close(sink)
            if rank not in self._children or self._children[rank].source != source:
                os.close(source)

    def _watch(self, rank: int, child: _Child) -> None:
        """One that cannot be watched (no descriptor is left, say) is ended: whoever called would start another."""
        try:
            child.pidfd = os.pidfd_open(child.pid)
            os.set_blocking(child.source, False)
            self._selector.register(child.source, selectors.EVENT_READ, ("answer", rank))
            self._selector.register(child.pidfd, selectors.EVENT_READ, ("end", rank))
        except BaseException:
            os.kill(child.pid, signal.SIGKILL)
            children.reap(child.pid)
            self._unregister(child)
            if child.pidfd >= 0:
                os.close(child.pidfd)
            raise
        self._children[rank] = child

    def poll(self, timeout_s: float | None = None) -> list[ChildExit]:
        """Waits until something is told or somebody ends; those who ended. None: without limit."""
        ended = []
        # Answers before ends: a child that wrote and ended at once is judged by what it wrote.
        for key, _ in sorted(self._selector.select(timeout_s), key=lambda event: event[0].data):
            what, rank = key.data
            child = self._children.get(rank)
            if child is None or key.fd not in (child.source, child.pidfd):
                continue
            if what == "answer":
                if not self._read(rank, child):
                    self._selector.unregister(key.fd)
            else:
                ended.append(self._collect_exit(rank, child))
        return ended

    def _collect_exit(self, rank: int, child: _Child) -> ChildExit:
        while self._read(rank, child):
            pass
        with children.defer_signals():
            del self._children[rank]
            status = children.reap(child.pid)
        self._forget(child)
        return ChildExit(rank, status, child.answered, child.result, child.failure, child.left)

    def _forget(self, child: _Child) -> None:
        self._unregister(child)
        os.close(child.source)
        os.close(child.pidfd)

    def _unregister(self, child: _Child) -> None:
        for fd in (child.source, child.pidfd):
            if fd >= 0 and fd in self._selector.get_map():
                self._selector.unregister(fd)

    def _read(self, rank: int, child: _Child) -> bool:
        """Takes what is there; False when nothing is, or ever will be."""
        try:
            data = os.read(child.source, 1 << 20)
        except BlockingIOError:
            return False
        # Only what is new is searched: a result of many megabytes comes in pieces of 64 KiB.
        seen = len(child.unread)
        child.unread += data
        while (stop := child.unread.find(b"\n", seen)) >= 0:
            message = unpack(bytes(child.unread[:stop]))
            del child.unread[: stop + 1]
            seen = 0
            match message:
                case Result(value):
                    child.answered, child.result = True, value
                case Failure():
                    child.answered, child.failure = True, message
                case LeftOnRequest():
                    child.answered, child.left = True, message
                case _:
                    self._on_report(rank, message)
        return bool(data)

    def kill(self, rank: int) -> None:
        """SIGKILL; its end is seen by the next `poll`."""
        signal.pidfd_send_signal(self._children[rank].pidfd, signal.SIGKILL)

    def signal(self, rank: int, number: int) -> None:
        signal.pidfd_send_signal(self._children[rank].pidfd, number)

    def close(self) -> None:
        """Ends whoever still lives and closes everything, whatever happens meanwhile."""
        try:
            children.end({child.pid: child.pidfd for child in self._children.values()}, self._grace_s)
        finally:
            for child in self._children.values():
                self._forget(child)
            self._children.clear()
            self._selector.close()
