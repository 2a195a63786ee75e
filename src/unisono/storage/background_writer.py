"""Writer: writes a snapshot while training goes on, in a process of its own or in a thread.

The one idea: one thing is written at a time, aside, and its caller looks now and then whether it is done. A process
does not slow the others, so the supervisor forks one. A rank takes a thread: it may hold MPI's and torch's threads and
locks, and forking those is what their manuals warn of.

    writer = ThreadWriter(); writer.start(lambda: str(write(...).path)); writer.ended(timeout_s=0.0)

Limits: a thread waits for the interpreter's lock now and then, and holds it while arrays are copied into a file's
format: as long as a copy in memory takes. It cannot be ended, and holds the lock of the snapshots until it ends.
"""

import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, final

from unisono.errors import RankFailed, UnisonoError
from unisono.supervise.processes import ProcessGroup, run_child
from unisono.supervise.signals import SIGNALS

_WRITER = 0
WAIT_S = 60.0
"""How long the end of a run waits for a snapshot that is being written."""
LAST_WAIT_S = 240.0
"""How long where it cannot be ended; other ranks wait meanwhile, and give up after `DEFAULT_TIMEOUT_S`."""


@final
class Answer(NamedTuple):
    """What came of it: where the snapshot is, or None and why."""

    path: str | None
    cause: str = ""


class Writer(ABC):
    """Does one thing at a time."""

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether something was started of which `ended` has not told."""

    @abstractmethod
    def start(self, work: Callable[[], str]) -> None:
        """Calls `work` aside; an `OSError` if that is not possible now."""

    @abstractmethod
    def ended(self, timeout_s: float) -> Answer | None:
        """What came of it, told once; None: it is still at work, after that time too."""

    @abstractmethod
    def drop(self) -> bool:
        """Ends what is being written, of which `ended` then tells; False if it cannot be ended."""

    @abstractmethod
    def close(self) -> None:
        """Gives everything back."""


@final
class ProcessWriter(Writer):
    """Forks."""

    def __init__(self) -> None:
        self._process_group = ProcessGroup(lambda rank, value: None)

    @property
    def busy(self) -> bool:
        return bool(self._process_group.living)

    def start(self, work: Callable[[], str]) -> None:
        def live(report: object) -> str:
            for number in SIGNALS:  # sent to all processes, they concern the parent alone
                signal.signal(number, signal.SIG_IGN)
            return work()

        self._process_group.start(_WRITER, partial(run_child, live))

    def ended(self, timeout_s: float) -> Answer | None:
        for one in self._process_group.poll(timeout_s):
            try:
                return Answer(one.check())
            except RankFailed as error:
                return Answer(None, error.report if error.kind else f"its writer {error.report}")
        return None

    def drop(self) -> bool:
        self._process_group.kill(_WRITER)
        return True

    def close(self) -> None:
        self._process_group.close()


@final
class ThreadWriter(Writer):
    """In this process."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._answers: list[Answer] = []

    @property
    def busy(self) -> bool:
        return self._thread is not None

    def start(self, work: Callable[[], str]) -> None:
        answers = self._answers = []

        def live() -> None:
            try:
                answers.append(Answer(work()))
            except UnisonoError as error:
                answers.append(Answer(None, str(error)))
            except Exception as error:  # raised in this thread it would be lost
                answers.append(Answer(None, f"{type(error).__name__}: {error}"))

        # A daemon: a disk that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=live, name="snapshot writer", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._thread = None
            raise OSError(0, str(error)) from None

    def ended(self, timeout_s: float) -> Answer | None:
        if self._thread is None:
            return None
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return None
        self._thread = None
        return self._answers[0]

    def drop(self) -> bool:
        return False

    def close(self) -> None:
        self._thread = None
