"""Faults at random times for `chaos.py` and its short form in the tests: kill -9, SIGSTOP, deaths of replacements.

The one idea: a run is the real command's code in a process group of its own, and whoever torments it knows no more than
its process tree. A seed decides kinds, victims and times; where in a step they strike is left to chance.

    with Run(lambda: run_recipe(recipe)) as run: faults = torment(run, random.Random(1), Habits(per_second=2))

Limits: Linux (pidfd, /proc). A victim is signalled through a pidfd, so never a stranger that got its number. One rank
is always left that was not killed, however late the run hears of the others: without any it could not go on.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, final

from unisono.errors import UnisonoError
from unisono.supervise.children import defer_signals, fork_child, readable, reap

KILL, STOP, TWICE, WHILE_STOPPED = "kill", "stop", "kill, and its replacement", "kill while another is stopped"


@final
@dataclass(frozen=True)
class Habits:
    """How a run is tormented."""

    per_second: float = 1.0
    most: int = 0
    """Faults; 0: until the run ends."""
    kinds: tuple[str, ...] = (KILL, KILL, KILL, STOP, TWICE)
    stop_s: float = 0.2


@final
class Run:
    """`work` in a child that leads a process group and writes to `log`. Leaving the block ends all of it."""

    def __init__(self, work: Callable[[], object], log: Path = Path(os.devnull)) -> None:
        def live() -> int:
            os.setpgid(0, 0)
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(output, 1)
            os.dup2(output, 2)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                work()
            except UnisonoError as error:
                os.write(2, f"unisono: {error}\n".encode())
                return error.exit_code
            return 0

        with defer_signals():
            self.pid = fork_child(live)
            self._pidfd = os.pidfd_open(self.pid)
        with suppress(OSError):  # whoever comes first: the group must exist before it is killed
            os.setpgid(self.pid, self.pid)
        self.status: int | None = None
        self.killed: set[int] = set()
        """Ranks that we killed; it may take a while until they are gone."""

    def ranks(self) -> list[int]:
        """The processes that it has started and that have not ended, in the order of their birth."""
        with suppress(OSError):
            return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]
        return []

    def living(self) -> list[int]:
        """Those that we have not killed."""
        ranks = self.ranks()
        self.killed.intersection_update(ranks)
        return [pid for pid in ranks if pid not in self.killed]

    def can_lose(self, pid: int) -> bool:
        """Whether another rank lives; who writes a snapshot is none."""
        return any(_is_rank(other) for other in self.living() if other != pid)

    def running(self, wait_s: float = 0.0) -> bool:
        """Whether it still does, after at most `wait_s`."""
        if self.status is None and readable(self._pidfd, wait_s):
            self.status = reap(self.pid)
        return self.status is None

    def kill(self) -> None:
        """The whole group at once, whatever it is doing. Its ranks are waited for too: they hold its lock."""
        if not self.running():
            return
        with ExitStack() as opened:
            pidfds = []
            for pid in self.ranks():
                with suppress(OSError):
                    pidfds.append(os.pidfd_open(pid))
                    opened.callback(os.close, pidfds[-1])
            os.killpg(self.pid, signal.SIGKILL)
            self.running(10.0)
            for pidfd in pidfds:
                readable(pidfd, 10.0)

    def code(self) -> int:
        """Its exit code; minus the number of the signal that ended it."""
        assert self.status is not None
        return os.waitstatus_to_exitcode(self.status)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        os.close(self._pidfd)


def _is_rank(pid: int) -> bool:
    """Whether this process lives and trains."""
    with suppress(OSError):
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")
        return "(unisono-rank" in name and not rest.startswith("Z")
    return False


def torment(run: Run, rng: random.Random, habits: Habits) -> Counter[str]:
    """Faults until the run ends, or the most; how many of each kind."""
    done: Counter[str] = Counter()
    due = time.monotonic()
    while not habits.most or done.total() < habits.most:
        due += rng.uniform(0.5, 1.5) / habits.per_second
        if not run.running(max(0.0, due - time.monotonic())):
            break
        kind = rng.choice(habits.kinds)
        if FAULTS[kind](run, rng, habits):
            done[kind] += 1
    return done


def _strike(run: Run, pid: int, number: int) -> bool:
    """Signals a rank; False if it was gone, or is the last one and would be killed."""
    if number == signal.SIGKILL and not run.can_lose(pid):
        return False
    with suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if pid in run.ranks():  # still ours after we got hold of it
                signal.pidfd_send_signal(pidfd, number)
                if number == signal.SIGKILL:
                    run.killed.add(pid)
                return True
        finally:
            os.close(pidfd)
    return False


def _kill(run: Run, rng: random.Random, habits: Habits) -> bool:
    ranks = run.living()
    return bool(ranks) and _strike(run, rng.choice(ranks), signal.SIGKILL)


def _stop(run: Run, rng: random.Random, habits: Habits) -> bool:
    ranks = run.living()
    if not ranks or not _strike(run, victim := rng.choice(ranks), signal.SIGSTOP):
        return False
    run.running(rng.uniform(0.1, 1.0) * habits.stop_s)
    _strike(run, victim, signal.SIGCONT)
    return True


def _twice(run: Run, rng: random.Random, habits: Habits) -> bool:
    before = set(run.ranks())
    if not _kill(run, rng, habits):
        return False
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline and run.running(0.0002):
        if fresh := [pid for pid in run.ranks() if pid not in before]:
            run.running(rng.uniform(0.0, 0.03))  # it is ready after a few milliseconds
            return _strike(run, fresh[0], signal.SIGKILL)
    return False


def _while_stopped(run: Run, rng: random.Random, habits: Habits) -> bool:
    ranks = run.living()
    if len(ranks) < 2:
        return False
    stopped, killed = rng.sample(ranks, 2)
    _strike(run, stopped, signal.SIGSTOP)
    hit = _strike(run, killed, signal.SIGKILL)
    run.running(rng.uniform(0.1, 1.0) * habits.stop_s)
    _strike(run, stopped, signal.SIGCONT)
    return hit


FAULTS: dict[str, Callable[[Run, random.Random, Habits], bool]] = {
    KILL: _kill,
    STOP: _stop,
    TWICE: _twice,
    WHILE_STOPPED: _while_stopped,
}
