"""Examining a machine: each probe in a process of its own, with a time-out; findings as they come.

    for finding in run_probes(): print(finding.status, finding.name, finding.told)

The one idea: the doctor must answer on machines where something is wrong. A probe that crashes, prints nonsense or does
not answer becomes a finding itself, with what it last said, and whatever it had started is ended with it.

Limits: a process that the kernel does not let go (a dead network disk) is left to it, after a moment.
"""

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from os import cpu_count, getpgid, getpid, killpg
from signal import SIGKILL, SIGTERM
from typing import Any

import psutil

from unisono.doctor.finding import Finding
from unisono.doctor.probes import PROBES, Probe
from unisono.environment.os_environ import without_secret
from unisono.launch.launcher_commands import python
from unisono.resources import UNREADABLE, load_average
from unisono.supervise.children import describe_end, die_with_parent

GRACE_S = 7.0
"""For what a probe has started, to end in good order before it is killed: an MPI that is killed leaves files behind."""

BUSY = 2.0
"""Processes for each core from which on being late says nothing about a probe."""


def run_probes(*, self_test: bool = True, tell: Callable[[str], None] = lambda about: None) -> Iterator[Finding]:
    """All findings, in the order of the probes. `tell` is called with what is looked at next."""
    for name, probe in PROBES.items():
        if self_test or not probe.self_test:
            tell(probe.about)
            yield from run_probe(name, probe)


def run_probe(name: str, probe: Probe, command: list[str] | None = None) -> list[Finding]:
    """What one probe finds. command: what to start instead, for tests."""
    late = False
    command = command or python("-m", "unisono.doctor.probe_entry", name)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as noise:
        started = subprocess.Popen(
            command,
            env=without_secret(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=noise,
            text=True,
            errors="replace",
            process_group=0,  # Ctrl-C is ours; what we have started is ended below
            preexec_fn=partial(die_with_parent, getpid(), SIGTERM),
        )
        try:
            said, _ = started.communicate(timeout=probe.timeout_s)
            problem = "" if started.returncode == 0 else _how(started.returncode)
        except subprocess.TimeoutExpired as error:
            said, problem, late = "", f"gave no answer within {probe.timeout_s:g} s", True
            if started.poll() == 0 and error.stdout:  # it did; what it has started holds its output open
                said, problem = error.stdout.decode(errors="replace"), ""
        finally:
            _end(started)
        if not problem:
            with suppress(ValueError, TypeError):
                return [Finding(**entry) for entry in json.loads(said.strip().rpartition("\n")[2])]
            problem = "gave an answer that is none"
        noise.seek(0)
        last = [line.strip() for line in noise.read()[-4000:].splitlines() if line.strip()]
    facts: dict[str, Any] = {"probe": name, "last_words": last[-5:]}
    told = f"the probe {problem}" + (f"; its last words: {last[-1]}" if last else "")
    fix = f"see what it says: python -m unisono.doctor.probe_entry {name}"
    if late and (load := load_average() or 0.0) > BUSY * (cpu_count() or 1):
        told = f"{told}; {load:.0f} processes want the {cpu_count()} cores"
        return [
            Finding(probe.about, "warning", told, "ask again when the machine is less busy", facts | {"load": load})
        ]
    return [Finding(probe.about, "failed", told, fix, facts)]


def _how(code: int) -> str:
    return describe_end(-code if code < 0 else code << 8)


def _tree(number: int) -> set[psutil.Process] | None:
    """The processes of a group, and what its leader has started; None where /proc does not tell."""
    found = set()
    try:
        for process in psutil.process_iter():
            with suppress(ProcessLookupError):
                if getpgid(process.pid) == number:
                    found.add(process)
        with suppress(psutil.NoSuchProcess):
            found |= set(psutil.Process(number).children(recursive=True))
    except UNREADABLE:
        return None
    return found


def _end_group(started: "subprocess.Popen[str]") -> None:
    """Used where /proc does not list the group: what a probe has started is in its group, unless it left it."""
    for sign, patience_s in ((SIGTERM, GRACE_S), (SIGKILL, 0.8)):
        with suppress(ProcessLookupError, PermissionError):
            killpg(started.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            started.wait(patience_s)


def _end(started: "subprocess.Popen[str]") -> None:
    """Ends a probe and all that it has started, which may be there when it has ended by itself."""
    tree = _tree(started.pid)
    if tree is None:
        _end_group(started)
        tree = set()
    for process in tree if started.poll() is not None else [started]:  # a probe that is there ends its own in order
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(tree, timeout=GRACE_S)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=0.8)
    with suppress(subprocess.TimeoutExpired):
        started.wait(0)
    if started.stdout is not None:
        started.stdout.close()
