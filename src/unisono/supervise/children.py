"""Child processes that cannot outlive us, and how they are watched and ended.

The one idea: the kernel sends a child SIGKILL when its parent dies (PR_SET_PDEATHSIG), so that not even kill -9 of the
parent leaves a process behind; and a `pidfd` tells of the death of a child without signals or polling.

    with defer_signals(): pid = fork_child(lambda: 0)
    end({pid: os.pidfd_open(pid)})
"""

import ctypes
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Self

from unisono.errors import CommTimeout

GRACE_S = 1.0
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_HELD = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP}
_libc = ctypes.CDLL(None, use_errno=True)
_MOST_POLL_S = 1e6
"""More is as good as without end: `poll` counts milliseconds in 32 bits."""


def die_with_parent(parent: int, with_signal: int = signal.SIGKILL) -> None:
    """Ends this process when `parent` ends, also if that happened before the call."""
    _libc.prctl(_PR_SET_PDEATHSIG, with_signal)
    if os.getppid() != parent:
        os._exit(1)


def name_rank(rank: int) -> None:
    """As `pgrep`, `top` and `ps -o comm` show this process: unisono-rank2."""
    _libc.prctl(_PR_SET_NAME, f"unisono-rank{rank}".encode())


@contextmanager
def defer_signals() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the end of the block: in between lies what must happen whole or not at all."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread alone
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def fork_child(body: Callable[[], int]) -> int:
    """A child that runs `body` and exits with what it returns; the pid. Call it with signals held."""
    parent = os.getpid()
    flush()
    with warnings.catch_warnings():
        # Python warns of any thread at all; BLAS pools are safe to fork, and `launch/local.py` looks for those that
        # are not.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        die_with_parent(parent)
        # Ctrl-C reaches the whole terminal group; the parent alone decides what it means.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
        code = body()
    except BaseException:
        traceback.print_exc()
    finally:
        # Not sys.exit: the parent's exit handlers and buffers are not ours to run.
        try:
            flush()
        finally:
            os._exit(code)


def flush() -> None:
    """What was printed leaves this process's buffers; a stream may be closed, or its reader gone."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()


def end(pidfds: dict[int, int], grace_s: float = GRACE_S) -> None:
    """Ends and reaps children of ours, given as pid -> pidfd: SIGTERM, after `grace_s` SIGKILL."""
    living = dict(pidfds)
    with defer_signals():
        for signum, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, math.inf)):
            for fd in living.values():
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(fd, signum)
            deadline = time.monotonic() + patience_s
            while living and _wait_for_one(list(living.values()), deadline):
                for pid, fd in list(living.items()):
                    if _wait_for_one([fd], 0.0):
                        reap(pid)
                        del living[pid]


def reap(pid: int) -> int:
    """The wait status of a child that has ended; 0 if somebody else took it (SIGCHLD is ignored, say)."""
    try:
        return os.waitpid(pid, 0)[1]
    except ChildProcessError:
        return 0


def readable(fd: int, timeout_s: float) -> bool:
    """Whether something can be read from `fd`, or its end was reached, within `timeout_s`."""
    return _wait_for_one([fd], time.monotonic() + timeout_s)


def _wait_for_one(pidfds: list[int], deadline: float) -> bool:
    """Whether one of them ended before `deadline`. `poll`, for `select` knows no descriptor above 1023."""
    poller = select.poll()
    for fd in pidfds:
        poller.register(fd, select.POLLIN)
    left_s = max(0.0, deadline - time.monotonic())
    return bool(poller.poll(None if left_s > _MOST_POLL_S else 1000 * left_s))


def describe_end(status: int) -> str:
    """'was killed by SIGKILL' or 'ended with exit code 3'."""
    if os.WIFSIGNALED(status):
        return f"was killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"ended with exit code {os.WEXITSTATUS(status)}"


class Subprocess:
    """A program whose output lines we read, and that ends when we do: by SIGTERM, so that mpirun can end its ranks.

    It has a process group of its own: Ctrl-C reaches us alone, and leaving the `with` block ends it. with_signal: what
    it gets when we are killed; SIGKILL for a program whose own children end with it.
    """

    def __init__(
        self,
        command: list[str],
        environment: dict[str, str],
        stderr: int,
        with_signal: int = signal.SIGTERM,
        pass_fds: Sequence[int] = (),
    ) -> None:
        """pass_fds: descriptors that it inherits, with the same numbers."""
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            process_group=0,
            pass_fds=pass_fds,
            preexec_fn=partial(die_with_parent, os.getpid(), with_signal),
        )
        self._name = command[0]

    def lines(self, silence_s: float) -> Iterator[str]:
        """Its output, line by line; a `CommTimeout` when nothing comes for `silence_s`."""
        assert self._process.stdout is not None
        fd, rest = self._process.stdout.fileno(), b""
        while True:
            if not readable(fd, silence_s):
                raise CommTimeout(f"{self._name} said nothing for {silence_s:g} s", hint="is the machine overloaded?")
            data = os.read(fd, 1 << 16)
            if not data:
                if rest:
                    yield rest.decode(errors="replace")
                return
            *whole, rest = (rest + data).split(b"\n")
            yield from (line.decode(errors="replace") for line in whole)  # whatever a program may print

    def send_signal(self, number: int) -> None:
        """To it alone, not to what it has started; nothing if it has ended."""
        self._process.send_signal(number)

    def wait(self, timeout_s: float = 30.0) -> int:
        """Its exit code, once its output has ended; a `CommTimeout` if it goes on for `timeout_s` without one."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise CommTimeout(f"{self._name} closed its output and went on for {timeout_s:g} s") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(5 * GRACE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.wait()
