"""Work: what torch gets for an operation, under way (`Operation`) or done (`DoneWork`).

    work.wait(); work.get_future().then(...)

`operation_queue.py` runs operations.
"""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, final

import torch
from torch._C._distributed_c10d import Work
from torch.futures import Future

from unisono.errors import CommError
from unisono.torch.calls import Call
from unisono.torch.compiler_exclusion import not_compiled
from unisono.torch.machine_memory import Steps
from unisono.torch.torch_errors import for_torch

if TYPE_CHECKING:
    from unisono.torch.operation_queue import OperationQueue


class _Thread(threading.local):
    """What this thread is doing."""

    in_callback = False
    """It runs the callbacks of a future."""


_THREAD = _Thread()


@final
@not_compiled
class Operation(Work):
    """One collective or message. `result`: what `wait` and the future give."""

    def __init__(self, queue: "OperationQueue", steps: Steps, call: Call, timeout_s: float, result: Any) -> None:
        super().__init__()
        self.inference = _any_inference(result)
        self.steps, self.call, self.timeout_s = steps, call, timeout_s
        self.deadline = time.monotonic() + timeout_s
        self.done = False
        self.error: BaseException | None = None
        self.peers: Sequence[int] | None = None
        """The other ends of a message; None for a collective."""
        self.sources: Sequence[int] = ()
        """Where a message came from."""
        self._queue, self._result = queue, result
        self._source: Future[Any] | None = None
        self._future: Future[Any] | None = None

    # -- what torch calls

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Returns when it is done, or raises its error."""
        if not self.done:
            self._queue.wait_for(self, seconds_of(timeout))
        if self.error is not None:
            raise self.error
        return True

    def is_completed(self) -> bool:
        if not self.done:
            self._queue.progress()
        return self.done

    def is_success(self) -> bool:
        return self.done and self.error is None

    def exception(self) -> BaseException | None:
        return self.error

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> Any:
        return self._result

    def source_rank(self) -> int:
        return self.sources[0] if self.sources else -1

    _source_rank = source_rank

    def get_future(self) -> "Future[Any]":
        if not self.done and (_THREAD.in_callback or self._queue.unattended):
            # Who calls this may wait for the future next, in C++, where nobody moves anything: so it is done first.
            with suppress(Exception):  # the future will raise it
                self._queue.wait_for(self, -1.0, alone=True)
        with self._queue.lock:
            if self._future is None:
                self._source = Future()
                self._future = self._source.then(_outcome)
                if self.done:
                    self._queue.lock.finished.append(self)
            future = self._future
        return future

    # -- for the queue

    def finish(self, error: BaseException | None) -> None:
        """With the queue's lock held."""
        self.error, self.done = error and for_torch(error), True
        self.steps = iter(())  # type: ignore[assignment]  # what it held goes
        if self._future is not None:
            self._queue.lock.finished.append(self)

    def settle(self) -> None:
        """Without that lock: callbacks run here."""
        assert self._source is not None
        error = self.error
        if isinstance(error, Exception):
            error = error.with_traceback(None)  # its frames would keep the group
        elif error is not None:
            error = CommError(f"{self.call.text} was interrupted")
        outer, _THREAD.in_callback = _THREAD.in_callback, True
        try:
            self._source.set_result((error, self._result))
        finally:
            _THREAD.in_callback = outer


@final
@not_compiled
class DoneWork(Work):
    """What was done when it was asked for."""

    def __init__(self, result: list[torch.Tensor]) -> None:
        super().__init__()
        self._result = result

    def wait(self, timeout: timedelta | None = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    is_success = is_completed

    def exception(self) -> None:
        return None

    def synchronize(self) -> None:
        pass

    def result(self) -> list[torch.Tensor]:
        return self._result

    def get_future(self) -> "Future[Any]":
        future: Future[Any] = Future()
        future.set_result(self._result)
        return future


def _outcome(settled: "Future[Any]") -> Any:
    """What `get_future` gives follows from a future that always succeeds, for what a callback raises is an error in C++
    as well. `Future.set_exception` sets a value that Python alone knows to be an error: DDP's reducer would take it for
    gradients, and crash."""
    error, result = settled.value()
    try:
        if error is not None:
            raise error
        return result
    finally:
        del settled, error, result  # a traceback keeps this frame


def _any_inference(result: Any) -> bool:
    """Whether one of these tensors, or lists of them, was made in inference mode."""
    if isinstance(result, torch.Tensor):
        return result.is_inference()
    return any(_any_inference(one) for one in result)


def seconds_of(timeout: timedelta | None) -> float:
    """Below 0 if none was given."""
    if timeout is None:
        return -1.0
    seconds = timeout.total_seconds()
    return seconds if seconds > 0 else -1.0
