"""OperationQueue: the operations of a group that are under way, and who moves them.

The one idea: whoever waits does the work. A `wait` runs the generator of an operation, and with it all that this rank
has under way in the group. An operation that nobody waits for is tried for a fraction of a millisecond by the call that
starts it; then one background thread of the process moves it, so that ranks which start operations of several groups in
different orders do not block each other.

    queue = OperationQueue(look, late, move, crowded=False)
    work = queue.start(steps, call, 30.0, tensors, background=True); work.wait()

Collectives of a group run one after the other, in the order in which they were started.
"""

import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, final
from weakref import WeakSet

import torch

from unisono.errors import CommError, first_line
from unisono.torch.calls import Call
from unisono.torch.machine_memory import Steps
from unisono.torch.torch_errors import for_torch
from unisono.torch.work import Operation

PATIENCE_S = 0.0003
"""How long a call that does not wait tries to finish."""
_SPINS = 200
"""Looks before the first yield, where each rank has a core."""
_YIELD_S = 0.002
_LOOK_S = 0.01
"""How often a rank that waits looks whether others have ended."""
_NAP_S = (0.00005, 0.001)
_IDLE_S, _STOP_S = 0.2, 2.0
"""How long the background thread stays when it has nothing to do; how long the end of the process waits for it."""


_QUEUES: "WeakSet[OperationQueue]" = WeakSet()
_QUEUES_LOCK = threading.Lock()


def _forbid_in_child() -> None:
    """A forked process has the memory of its parent's groups, and must not act in their place."""
    _QUEUES_LOCK.release()
    for queue in list(_QUEUES):
        queue.forget("this process was forked from the one that made it")


os.register_at_fork(before=_QUEUES_LOCK.acquire, after_in_parent=_QUEUES_LOCK.release, after_in_child=_forbid_in_child)


@final
class QueueLock:
    """A lock that its owner may take again. Who gives it back for good runs the callbacks of what was finished under
    it: they may wait for operations of other groups, and whoever moves those may wait for this lock."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self.finished: list[Operation] = []

    def acquire(self, *, blocking: bool = True) -> bool:
        taken = self._lock.acquire(blocking)
        self._depth += taken
        return taken

    def release(self) -> None:
        self._depth -= 1
        finished: list[Operation] = []
        if not self._depth:
            finished, self.finished = self.finished, finished
        self._lock.release()
        for operation in finished:
            operation.settle()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()


@final
class OperationQueue:
    """The operations of one group on one rank.

    look(operation): raises if a rank that it waits for has ended. late(operation): the error when its time is up.
    """

    def __init__(
        self,
        look: Callable[["Operation"], None],
        late: Callable[["Operation"], Exception],
        move: Callable[[], None],
        leave: Callable[[str], None],
        *,
        crowded: bool,
    ) -> None:
        """move: moves messages under way. leave: lets the other ranks know that this one is leaving, and why."""
        self.lock = QueueLock()
        self.broken = ""
        """Why nothing can be started any more; empty while the group works."""
        self._look, self._late, self._move, self._leave = look, late, move, leave
        self._spins = 0 if crowded else _SPINS
        self._collectives: deque[Operation] = deque()
        self._messages: list[Operation] = []
        with _QUEUES_LOCK:
            _QUEUES.add(self)

    def forget(self, why: str) -> None:
        """What is under way is not this process's any more."""
        self.lock, self.broken = QueueLock(), why
        self._collectives, self._messages = deque(), []

    def check_open(self) -> None:
        """Refuses everything after an error, and after the end."""
        if self.broken:
            raise for_torch(CommError(f"this process group is broken: {self.broken}", hint="make a new one"))

    def start(
        self,
        steps: Steps,
        call: Call,
        timeout_s: float,
        result: Any,
        *,
        background: bool,
        peers: Sequence[int] | None = None,
    ) -> Operation:
        """background: whether the caller goes on at once. peers: of a message, which waits for no collective."""
        operation = Operation(self, steps, call, timeout_s, result)
        operation.peers = peers
        with self.lock:
            self.check_open()
            if peers is not None:
                self._messages.append(operation)
            else:
                self._collectives.append(operation)
            self._advance()
        if background and not operation.done and not self._tried(operation):
            BACKGROUND.add(self)
        return operation

    @property
    def unattended(self) -> bool:
        """Whether no background thread moves anything any more, at the end of the process."""
        return BACKGROUND.stopped

    @property
    def idle(self) -> bool:
        """Whether a collective can begin at once, which the caller may do with the lock held."""
        return not self._collectives and not self.broken

    @property
    def waiting(self) -> bool:
        """Whether anything is under way."""
        return bool(self._collectives or self._messages)

    def progress(self, *, look: bool = False, awaited: Operation | None = None) -> None:
        """Moves what can be moved; never blocks. look: also for ranks that have ended, and at the clock; awaited: an
        operation whose time may be up before that of those in front of it."""
        with self.lock:
            self._advance()
            if look:
                for operation in [*self._messages, *list(self._collectives)[:1], *([awaited] if awaited else [])]:
                    self._judge(operation)

    def _progress_of_others(self, *, look: bool) -> None:
        """Called instead of the background thread, by who keeps it: moves all other groups. Those that are in another
        thread's hands are moved there."""
        with _QUEUES_LOCK:
            queues = list(_QUEUES)
        for queue in queues:
            if queue is not self and queue.waiting and queue.lock.acquire(blocking=False):
                try:
                    queue.progress(look=look)
                finally:
                    queue.lock.release()

    def wait_for(self, operation: Operation, timeout_s: float, *, alone: bool = False) -> None:
        """Runs what is under way until this one is done; timeout_s: below 0 for the operation's own. alone: nobody else
        may be moving the other groups of this process."""
        if timeout_s >= 0:
            operation.deadline = min(operation.deadline, time.monotonic() + timeout_s)
        for _ in range(self._spins):
            if operation.done:
                return
            self.progress()
        begun = looked = time.monotonic()
        nap = _NAP_S[0]
        while not operation.done:
            now = time.monotonic()
            look = now - looked > _LOOK_S
            self.progress(look=look, awaited=operation)
            if alone:
                self._progress_of_others(look=look)
            if look:
                looked = now
            if operation.done:
                return
            if now - begun < _YIELD_S:
                os.sched_yield()
            else:
                time.sleep(nap)
                nap = min(nap * 1.2, _NAP_S[1])

    def end(self, why: str) -> None:
        """Nothing can be started any more; what is under way fails, and the group is let go of."""
        with self.lock:
            self._break(why, CommError(f"this process group is broken: {why}"), "")
            self._look = self._late = self._move = self._leave = _nothing

    def _tried(self, operation: Operation) -> bool:
        """Whether it is done within the patience of a call that does not wait."""
        until = time.monotonic() + PATIENCE_S
        while not operation.done and time.monotonic() < until:
            self.progress()
            if not operation.done and not self._spins:
                os.sched_yield()
        return operation.done

    def _advance(self) -> None:
        """With the lock held."""
        if self._messages:
            self._move()
            for one in list(self._messages):  # what waits for a future may start more meanwhile
                self._stepped(one)
            self._messages = [one for one in self._messages if not one.done]
        while self._collectives:
            head = self._collectives[0]
            if not self._stepped(head):
                return
            # What waits for a future may have started the next one already, and taken this one away.
            if self._collectives and self._collectives[0] is head:
                self._collectives.popleft()

    def _stepped(self, operation: Operation) -> bool:
        """Whether it is done after another step."""
        if operation.done:
            return True
        try:
            if operation.inference:
                with torch.inference_mode():
                    next(operation.steps)
            else:
                next(operation.steps)
        except StopIteration:
            operation.finish(None)
        except BaseException as error:
            self._fail(operation, error)
            if not isinstance(error, Exception):
                raise
        return operation.done

    def _judge(self, operation: Operation) -> None:
        if operation.done:
            return
        try:
            if operation.peers is None:
                self._look(operation)
            if time.monotonic() > operation.deadline:
                raise self._late(operation)
        except Exception as error:
            self._fail(operation, error)
            self._messages = [one for one in self._messages if not one.done]

    def _fail(self, operation: Operation, error: BaseException) -> None:
        """What is under way beside it fails as well: ranks are no longer at the same place."""
        with suppress(Exception):
            operation.steps.close()
        operation.finish(error)
        self.break_off(f"{operation.call.name} failed: {first_line(error) or type(error).__name__}", error)

    def break_off(self, why: str, error: BaseException) -> None:
        """With the lock held: this rank is no longer where the others are, so nothing more may begin."""
        self._break(why, for_torch(error), why)

    def _break(self, why: str, error: BaseException, reason: str) -> None:
        """reason: for the other ranks; empty if this one leaves in peace."""
        if not self.broken:
            self.broken = why
            with suppress(Exception):  # then the others learn it from the end of this process, or from the clock
                self._leave(reason)
        for other in [*self._collectives, *self._messages]:
            if not other.done:
                other.finish(error if isinstance(error, Exception) else CommError(why))
        self._collectives.clear()
        self._messages = []


def _nothing(*given: Operation | str) -> Any:
    """Instead of a group that has ended."""


@final
class _Background:
    """The one thread of a process that moves operations which nobody waits for. It ends when it has nothing to do."""

    def __init__(self) -> None:
        self.stopped = False
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        self._added = threading.Condition()
        self._queues: list[OperationQueue] = []

    def add(self, queue: OperationQueue) -> None:
        if self._pid != os.getpid():  # a fork has no such thread
            self._forget()
        with self._added:
            if self.stopped:
                return
            if queue not in self._queues:
                self._queues.append(queue)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="unisono-progress", daemon=True)
                self._thread.start()
            self._added.notify()

    def stop(self) -> None:
        """Called before the interpreter ends: it would stop the thread wherever that is, and in the middle of torch's
        C++ this aborts the process."""
        with self._added:
            self.stopped, thread = True, self._thread
            self._added.notify()
        if thread is not None and self._pid == os.getpid():
            thread.join(_STOP_S)

    def _run(self) -> None:
        nap, turn = _NAP_S[0], 0
        while not self.stopped:
            with self._added:
                self._queues = [queue for queue in self._queues if queue.waiting]
                if not self._queues:
                    nap = _NAP_S[0]
                    if not self._added.wait(_IDLE_S) and not self._queues:
                        self._thread = None
                        return
                busy = list(self._queues)
            turn += 1
            for queue in busy:
                queue.progress(look=turn % 64 == 0)
            time.sleep(nap)
            nap = min(nap * 1.01, _NAP_S[1])


BACKGROUND = _Background()
atexit.register(BACKGROUND.stop)
