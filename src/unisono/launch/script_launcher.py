"""script_launcher: starts an unchanged torch script as several ranks of this machine, and ends them together.

    code = launch_script(["train.py", "--epochs", "3"], ScriptOptions(ranks=4))
    mpirun -n 4 unisono launch train.py                # mpirun has started the ranks: each runs the script

Its one idea: ranks are programs of their own with the variables that torchrun would set. Their lines are passed on
whole, each rank's in order. A rank that fails ends the others, and the traceback of the cause alone is shown: those of
the others say that they lost it. A traceback is therefore held back until its rank has ended, or goes on after all.

Limits: the port at which ranks meet was free a moment before rank 0 takes it. Processes that a rank starts itself get
no signal but the last one, SIGKILL, if they have stayed in its process group.
"""

import fcntl
import io
import os
import selectors
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from types import FrameType
from typing import IO, Any, NoReturn, final

from unisono.environment.os_environ import forget_secret, rank_around_launch, script_environment
from unisono.environment.process_rank import Placement
from unisono.errors import RankFailed
from unisono.launch.launcher_commands import user_script
from unisono.launch.script_options import ScriptOptions, check_script, free_port
from unisono.os_limits import check_limits, naming_shortage
from unisono.supervise.children import describe_end, die_with_parent

GRACE_S, ASKED_S = 5.0, 30.0
"""How long ranks may take to end after another has failed; after a signal from outside, on which they may save."""
CAUSE_S = 1.0
"""How long other ranks may take to fail by themselves after the first: the cause may be among them, and ranks of other
machines learn it from them."""
HELD_S = 3.0
"""How long the traceback of a rank that goes on is held back."""
_TRACEBACK = b"Traceback (most recent call last)"
_CONSEQUENCES = (b"RankLost: ", b"CommTimeout: ", b"CommError: ", b"DistBackendError: ", b"KeyboardInterrupt")
"""Errors of ranks that have lost another one."""
_MOST_REST = 1 << 16
"""Bytes of a line that is not at its end: more are passed on."""
_FILES = 3
"""Descriptors that a rank costs here: its two streams, and its end."""


def launch_script(command: Sequence[str], options: ScriptOptions) -> int:
    """Runs the script until all ranks have ended; the exit code. `RankFailed` if a rank fails."""
    has_input = _has_input()  # before anything is opened, in case that is closed
    check_script(command)
    placement, ignored = rank_around_launch()
    if placement is not None:
        if not options.starts_ranks:
            become_rank(command, options, placement)
        options = options.on_machine(placement)
    elif ignored:
        sys.stderr.write(f"unisono: {ignored} of the environment do not count here: unset them, or start by torchrun\n")
    port = options.main_port if options.num_nodes > 1 else free_port()
    placements = options.placements(port)
    check_limits(len(placements), rank_files=_FILES, option="--ranks")
    threads = options.threads_of(len(placements))
    with ExitStack() as stack:
        ranks = _Ranks(sys.stdout.buffer, sys.stderr.buffer)
        stack.callback(ranks.close)
        stack.enter_context(_passing_signals(ranks.pass_signal))
        for placement in placements:
            environment = script_environment(
                placement,
                threads,
                replace_gloo=options.replace_gloo,
                chosen=bool(options.threads or options.virtual_ranks),
            )
            with naming_shortage(f"rank {placement.rank} of {placement.size} could not be started"):
                reads = placement.rank == 0 and has_input
                ranks.start(placement.rank, user_script(*command), environment, reads=reads)
        return ranks.run()


def become_rank(command: Sequence[str], options: ScriptOptions, placement: Placement) -> NoReturn:
    """mpirun or srun has started the ranks, and watches them: this process runs the script as one of them."""
    threads = options.threads_of(placement.local_size or 1)
    environment = script_environment(
        placement, threads, replace_gloo=options.replace_gloo, chosen=bool(options.threads)
    )
    program = user_script(*command)
    forget_secret()
    os.execve(program[0], program, environment)


def _has_input() -> bool:
    """Whether something is piped in. A terminal is not for ranks: they are not in its foreground, and it would stop
    them."""
    try:
        return not os.isatty(0) and os.fstat(0) is not None
    except OSError:  # closed
        return False


@final
class _Rank:
    """One process and what it says."""

    def __init__(self, number: int, process: subprocess.Popen[bytes], pidfd: int) -> None:
        self.number, self.process, self.pidfd = number, process, pidfd
        self.held: list[bytes] = []
        """A traceback so far."""
        self.held_since = 0.0
        self.rest = {1: b"", 2: b""}
        """Of either stream: the beginning of a line."""
        self.open = 2
        self.status = 0
        self.ended_before_failure = False
        """Well, and when no rank had failed."""

    @property
    def told_cause(self) -> bool:
        """Whether what it failed of is not the loss of another rank."""
        lost = any(name in line for line in self.held for name in _CONSEQUENCES)
        return self.killed or (not lost and os.WIFEXITED(self.status))

    @property
    def killed(self) -> bool:
        """Whether a signal ended it that is not this launcher's."""
        return os.WIFSIGNALED(self.status) and os.WTERMSIG(self.status) != signal.SIGTERM


@final
class _Ranks:
    """Those that this process has started."""

    def __init__(self, out: IO[bytes], err: IO[bytes]) -> None:
        self._streams = {1: out, 2: err}
        self._selector = selectors.DefaultSelector()
        self._ranks: list[_Rank] = []
        self._living: set[int] = set()
        self._failed: list[_Rank] = []
        """In the order in which they ended, until the others were ended."""
        self._end_at = float("inf")
        self._signal = 0
        self._signals = 0
        self._kill_at = float("inf")

    def start(self, number: int, command: list[str], environment: dict[str, str], *, reads: bool) -> None:
        """reads: it gets what this process has as its input."""
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=None if reads else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,  # Ctrl-C reaches this process alone, which passes it on
            preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGKILL),
        )
        rank = _Rank(number, process, os.pidfd_open(process.pid))
        self._ranks.append(rank)
        self._living.add(number)
        for fd, stream in ((1, process.stdout), (2, process.stderr)):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, (rank, fd))
        self._selector.register(rank.pidfd, selectors.EVENT_READ, (rank, 0))

    def pass_signal(self, number: int) -> None:
        """To all ranks; the third time they are killed."""
        self._signal = self._signal or number
        self._signals += 1
        passed = signal.SIGTERM if number == signal.SIGPIPE else number
        self._end_all(passed if self._signals < 3 else signal.SIGKILL, ASKED_S)

    def run(self) -> int:
        """Passes lines on until all have ended."""
        warned = False
        while self._living:
            now = time.monotonic()
            if self._signals == 2 and not warned:
                warned, left = True, ", ".join(map(str, sorted(self._living)))
                self._write(2, f"unisono: waiting for rank {left} to end; the next signal kills\n".encode())
            if now > self._end_at:
                self._end_at = float("inf")
                self._end_all(signal.SIGTERM)
            if now > self._kill_at:
                self._kill_at = float("inf")
                self._end_all(signal.SIGKILL)
            for key, _ in self._selector.select(0.2):
                rank, fd = key.data
                if fd:
                    self._read(rank, fd)
                elif rank.number in self._living:
                    self._ended(rank)
            for rank in self._ranks:
                if rank.held and time.monotonic() - rank.held_since > HELD_S and rank.number in self._living:
                    self._release(rank)
        return self._result()

    def _result(self) -> int:
        if self._signal:
            name = "interrupted" if self._signal == signal.SIGINT else f"ended by {signal.Signals(self._signal).name}"
            self._write(2, f"unisono: {name}\n".encode())
            return 128 + self._signal
        if not self._failed:
            return 0
        cause = next((rank for rank in self._failed if rank.told_cause), self._failed[0])
        early = [rank.number for rank in self._ranks if rank.ended_before_failure and not cause.told_cause]
        self._release(cause)
        code = os.waitstatus_to_exitcode(cause.status)
        before = f"; rank {', '.join(map(str, early))} had ended before, with exit code 0" if early else ""
        raise RankFailed(
            cause.number,
            f"{describe_end(cause.status)}{before}; the other ranks were ended",
            exit_code=code if code > 0 else 1,
        )

    def _read(self, rank: _Rank, fd: int) -> None:
        stream = rank.process.stdout if fd == 1 else rank.process.stderr
        assert stream is not None
        if stream.closed:
            return
        try:
            data = os.read(stream.fileno(), 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(stream)
            stream.close()
            rank.open -= 1
            self._flush(rank, fd)
            return
        self._take(rank, fd, data)

    def _take(self, rank: _Rank, fd: int, data: bytes) -> None:
        """Passes on what is whole: lines, and the states of a progress bar, which end with a carriage return."""
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not cut and len(rank.rest[fd]) + len(data) < _MOST_REST:
            rank.rest[fd] += data
            return
        whole, rest = (rank.rest[fd] + data[:cut], data[cut:]) if cut else (rank.rest[fd] + data, b"")
        rank.rest[fd] = rest
        if fd == 2 and (rank.held or _TRACEBACK in whole):
            for line in whole.splitlines(keepends=True):
                self._line(rank, fd, line)
        else:
            self._write(fd, whole)

    def _flush(self, rank: _Rank, fd: int) -> None:
        """The beginning of a line is all that there is of it."""
        if rank.rest[fd]:
            self._line(rank, fd, rank.rest[fd] + b"\n")
            rank.rest[fd] = b""

    def _line(self, rank: _Rank, fd: int, line: bytes) -> None:
        if fd == 2 and (rank.held or _TRACEBACK in line):
            rank.held_since = rank.held_since if rank.held else time.monotonic()
            rank.held.append(line)
        else:
            self._write(fd, line)

    def _release(self, rank: _Rank) -> None:
        for line in rank.held:
            self._write(2, line)
        rank.held = []

    def _write(self, fd: int, line: bytes) -> None:
        try:
            self._streams[fd].write(line)
            self._streams[fd].flush()
        except BrokenPipeError:  # nobody reads any more (| head): as the shell would, this ends the ranks
            self._streams[fd] = io.BytesIO()  # for the few lines that still come
            if not self._signal:
                self.pass_signal(signal.SIGPIPE)

    def _ended(self, rank: _Rank) -> None:
        self._living.discard(rank.number)
        self._selector.unregister(rank.pidfd)
        _, rank.status = os.waitpid(rank.process.pid, 0)
        rank.process.returncode = os.waitstatus_to_exitcode(rank.status)
        self._drain(rank)
        if rank.status == 0:
            rank.ended_before_failure = not self._failed
            self._release(rank)
        elif not self._signal and (not self._failed or self._end_at < float("inf")):
            if not self._failed:
                self._end_at = time.monotonic() + CAUSE_S
            self._failed.append(rank)
        elif self._signal == signal.SIGTERM and os.WIFEXITED(rank.status):
            self._release(rank)  # it was asked to end, and this is what went wrong
        if rank not in self._failed:
            rank.held = []

    def _drain(self, rank: _Rank) -> None:
        """What it has said until now; a child of its own may keep the streams open, and write for ever."""
        for fd, stream in ((1, rank.process.stdout), (2, rank.process.stderr)):
            if stream is None or stream.closed:
                continue
            left = struct.unpack("i", fcntl.ioctl(stream.fileno(), termios.FIONREAD, b"\0\0\0\0"))[0]
            while left > 0 and (data := os.read(stream.fileno(), min(left, 1 << 16))):
                left -= len(data)
                self._take(rank, fd, data)
            self._flush(rank, fd)

    def _end_all(self, number: int, grace_s: float = GRACE_S) -> None:
        for rank in self._ranks:
            if rank.number in self._living:
                with suppress(ProcessLookupError):
                    if number == signal.SIGKILL:
                        os.killpg(rank.process.pid, number)
                    else:
                        signal.pidfd_send_signal(rank.pidfd, number)
        self._kill_at = min(self._kill_at, time.monotonic() + grace_s)

    def close(self) -> None:
        """Ends what is left, whatever has happened."""
        for rank in self._ranks:
            if rank.number in self._living:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(rank.pidfd, signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(rank.process.pid, 0)
                rank.process.returncode = -signal.SIGKILL
            for stream in (rank.process.stdout, rank.process.stderr):
                if stream is not None:
                    stream.close()
            os.close(rank.pidfd)
        self._selector.close()


@final
class _passing_signals:
    """Ctrl-C, SIGTERM and SIGHUP go to the ranks inside."""

    def __init__(self, act: Callable[[int], None]) -> None:
        self._act = act
        self._before: dict[int, Any] = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._act(number)

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
