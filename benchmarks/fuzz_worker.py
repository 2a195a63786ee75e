"""Runs one input of `fuzz.py` in a process of its own, watches it, and says what went wrong.

The one idea: unisono is imported once; each input is a fork that calls the command as the shell would, inside a sandbox
of its own (working directory, home, temporary files), and everything around it is compared afterwards. So an input
costs milliseconds, and whatever it leaves behind is its own.

    findings = run_input(Input(("report", "run"), allowed=REFUSED), sandbox, Limits())

Limits: memory is that of the largest process. What a process does between its end and the end of the interpreter is
seen only for inputs that run in a fresh interpreter (`fresh`).
"""

import ctypes
import faulthandler
import io
import os
import re
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, NoReturn

from fuzz_sandbox import MARK, Finding, Sandbox, changes, leaks, left_shared, text_of

ACCEPTED, REFUSED, EITHER = frozenset({0}), frozenset({2}), frozenset({0, 2})
"""Exit codes of valid input, of a user's mistake, and of input that may be either."""
HEADINGS = (
    "traceback", "hang", "wrong exit code", "memory", "left behind", "changed outside", "executed", "leak", "control",
)  # fmt: skip
GIB = 1 << 30
_DUMP = signal.SIGRTMIN + 7  # type: ignore[operator]
_TRACEBACK = "Traceback (most recent call last)"
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_LAUNCHERS = (
    "SLURM_",
    "OMPI_",
    "PMI",
    "PMIX",
    "TORCHELASTIC_",
    "GROUP_",
    "LOCAL_",
    "MASTER_",
    "PYTHONIO",
    "PYTHONUTF8",
)
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Limits:
    """What a process may take."""

    seconds: float = 30.0
    """Without the time for which it and its children waited for a core; ten times as long in any case."""
    memory_bytes: int = GIB
    address_bytes: int = 4 * GIB
    """More than this is not given to it, to protect the machine."""
    processes: int = 48
    grace_s: float = 5.0
    """How long children may take to end after their parent."""


@dataclass(frozen=True)
class Input:
    """A command line, or a function to call instead, and the exit codes that are right."""

    argv: tuple[str, ...] = ()
    allowed: frozenset[int] = EITHER
    about: str = ""
    call: Callable[[], None] | None = None
    environment: dict[str, str] = field(default_factory=dict)
    encoding: str = "utf-8"
    """Of standard output and error."""
    fresh: bool = False
    """Whether a new interpreter runs it."""


class Ended(NamedTuple):
    """How a process ended. code: None if it had to be killed, and `why` says what for."""

    code: int | None
    why: Finding | None
    peak_bytes: int


def adopt_orphans() -> None:
    """From here on, descendants whose parents end become children of this process."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run_input(given: Input, sandbox: Sandbox, limits: Limits) -> list[Finding]:
    """What went wrong, if anything. `adopt_orphans` was called, and this process has no other children."""
    before, shared = sandbox.surroundings(), set(os.listdir("/dev/shm"))
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        _become(given, sandbox, limits)
    ended = _watch(pid, limits)
    findings = _left_processes(limits.grace_s)
    findings += [Finding("left behind", f"/dev/shm/{name}") for name in left_shared(shared)]
    texts = {name: text_of(sandbox.root / name) for name in ("stdout", "stderr")}
    whole = texts["stdout"] + texts["stderr"]
    if ended.why:
        findings.append(Finding(ended.why.heading, ended.why.line or _where(texts["stderr"])))
    elif _TRACEBACK in whole or "Fatal Python error" in whole:
        findings.append(Finding("traceback", last_line(whole)))
    elif ended.code is not None and ended.code not in given.allowed:
        wanted = " or ".join(map(str, sorted(given.allowed)))
        findings.append(Finding("wrong exit code", f"{ended.code} instead of {wanted}: {_said(texts['stderr'])}"))
    if ended.peak_bytes > limits.memory_bytes:
        findings.append(Finding("memory", f"{ended.peak_bytes / GIB:.1f} GiB: {_said(texts['stderr'])}"))
    if found := _CONTROL.search(whole):
        line = whole[: found.end() + 30].splitlines()[-1] if whole else ""
        findings.append(Finding("control", f"{found[0]!r} in {line.strip()[:100]!r}"))
    if any((folder / MARK).exists() for folder in (sandbox.root, sandbox.work)):
        findings.append(Finding("executed", "code of the input ran"))
    findings += changes(before, sandbox)
    findings += [Finding("leak", f"a file outside was copied into {place}") for place in leaks(sandbox, whole)]
    return findings


def last_line(text: str) -> str:
    """Of a traceback: where in unisono, and what was raised."""
    text = text.rpartition(_TRACEBACK)[2] or text
    places = re.findall(r'File "[^"]*?/unisono/([^"]+)", line (\d+)', text)
    raised = [line for line in text.splitlines() if re.match(r"[\w.]+(Error|Exception|Interrupt|Exit|Warning)\b", line)]
    raised = raised or [line for line in text.splitlines() if line.strip()] or ["?"]
    return f"{':'.join(places[-1]) if places else '?'} {raised[-1].strip()[:160]}"


def _where(dump: str) -> str:
    """Of the stacks of all threads that a process was asked for: the innermost line of unisono's."""
    found = re.search(r'File "[^"]*?/unisono/([^"]+)", line (\d+)', dump)
    return f"{found[1]}:{found[2]}" if found else "in no line of unisono's"


def _become(given: Input, sandbox: Sandbox, limits: Limits) -> NoReturn:
    """In the child: never returns."""
    code = 1
    try:
        os.setsid()
        for number, name in ((0, "/dev/null"), (1, sandbox.root / "stdout"), (2, sandbox.root / "stderr")):
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(fd, number)
            os.close(fd)
        os.chdir(sandbox.work)
        _set_up(given, sandbox, limits)
        if given.fresh:
            os.execve(sys.executable, [sys.executable, "-m", "unisono", *map(os.fsencode, given.argv)], os.environ)
        faulthandler.register(_DUMP, file=2, all_threads=True)
        for number, name in ((1, "stdout"), (2, "stderr")):
            raw = io.FileIO(number, "w", closefd=False)
            errors = "strict" if number == 1 else "backslashreplace"
            file = io.TextIOWrapper(io.BufferedWriter(raw), given.encoding, errors, line_buffering=number == 2)
            setattr(sys, name, file)
            setattr(sys, f"__{name}__", file)
        code = _call(given)
    except BaseException:
        traceback.print_exc()
    finally:
        for file in (sys.stdout, sys.stderr):
            with suppress(Exception):
                file.flush()
        os._exit(code & 0xFF)


def _set_up(given: Input, sandbox: Sandbox, limits: Limits) -> None:
    for name in [name for name in os.environ if name.startswith(_LAUNCHERS)]:
        del os.environ[name]
    os.environ |= {
        "HOME": str(sandbox.root / "home"), "TMPDIR": str(sandbox.root / "tmp"), "COLUMNS": "100",
        "MPLCONFIGDIR": str(sandbox.template), "PYTHONDONTWRITEBYTECODE": "1", **given.environment,
    }  # fmt: skip
    address = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + limits.address_bytes
    resource.setrlimit(resource.RLIMIT_AS, (address, address))
    resource.setrlimit(resource.RLIMIT_FSIZE, (GIB, GIB))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _call(given: Input) -> int:
    sys.argv = ["unisono", *given.argv]
    try:
        if given.call is not None:
            _call_function(given.call)
        else:
            from unisono.cli.main import main

            main()
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else int(left.code is not None)
    return 0


def _call_function(call: Callable[[], None]) -> None:
    """Errors of unisono's end it as they end the command."""
    from unisono.cli.main import fail
    from unisono.errors import UnisonoError

    try:
        call()
    except UnisonoError as error:
        fail(str(error), error.exit_code)


def _watch(pid: int, limits: Limits) -> Ended:
    """Waits for the end, or brings it about."""
    begun, why, waited = time.monotonic(), None, dict[int, float]()
    waiting = select.poll()
    descriptor = os.pidfd_open(pid)
    waiting.register(descriptor, select.POLLIN)
    while not waiting.poll(250):
        passed = time.monotonic() - begun
        family = {pid, *_session(pid)}
        waited |= {each: _waited_s(each) for each in family}
        if passed - sum(waited.values()) > limits.seconds or passed > 10 * limits.seconds:
            os.kill(pid, _DUMP)  # shows where it is
            waiting.poll(500)
            why = Finding("hang", "")
        elif len(family) > limits.processes:
            why = Finding("left behind", f"{len(family)} processes at once")
        elif _rss(pid) > 1.5 * limits.memory_bytes:
            why = Finding("memory", f"{_rss(pid) / GIB:.1f} GiB, and ended for it")
        if why:
            for each in {pid, *_session(pid)}:
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            break
    os.close(descriptor)
    _, status, used = os.wait4(pid, 0)
    peak = 0 if why else used.ru_maxrss * 1024
    return Ended(None if why else os.waitstatus_to_exitcode(status), why, peak)


def _waited_s(pid: int) -> float:
    """How long it was ready and had no core."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def _rss(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    return 0


def _session(pid: int) -> Iterator[int]:
    """The processes that it started, and it."""
    for name in os.listdir("/proc"):
        with suppress(OSError, ValueError, IndexError):
            if name.isdecimal() and os.getsid(int(name)) == pid:
                yield int(name)


def _left_processes(grace_s: float) -> list[Finding]:
    """Descendants that outlive their parent; they are killed."""
    deadline, findings = time.monotonic() + grace_s, []
    with suppress(ChildProcessError):
        while True:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid:
                continue
            if time.monotonic() > deadline:
                for each in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
                    with suppress(OSError):
                        name = Path(f"/proc/{each}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                        findings.append(Finding("left behind", f"a process: {name[:100]}"))
                        os.kill(int(each), signal.SIGKILL)
                os.waitpid(-1, 0)
            time.sleep(0.01)
    return findings


def _said(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[0].strip()[:140] if lines else "nothing said"
