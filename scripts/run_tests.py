"""Runs the whole suite as several runs of pytest, four of them at once: many tests wait for processes, clusters or
time-outs, so four keep two cores busy.

    .venv-test/bin/python scripts/run_tests.py

Prints what each part says when it is done. Tests that failed run once more at the end, alone: those that pass then are
named (`passed at the second try: NAME`), for each needs a cure. The slowest tests and the total time follow. The exit
code is 0 if all are green. For some tests only, use `python -m pytest ARGUMENTS`.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple
from xml.etree import ElementTree

from unisono.supervise.children import die_with_parent

AT_ONCE = 4
PARTS = (
    ("tests/faults", "tests/launch", "tests/supervise", "tests/comm"),
    ("tests/cli/test_[d-z]*.py",),
    ("tests/cluster/test_n*.py",),
    ("tests/loop", "tests/models", "tests/conformance"),
    ("tests/cluster/test_slurm_*.py",),  # one cluster at a time: it has the ports of SLURM
    ("tests/training", "tests/runs", "tests/storage", "tests/strategies"),
    ("tests/torch",),
    ("tests/report", "tests/arena"),
    ("tests/cli/test_[a-c]*.py",),
)
"""The longest begin first. Files that no pattern names are a last part of their own."""
FAILED = 1
"""pytest's exit code if tests failed; others are not about single tests."""
SLOWEST = 15


class Part(NamedTuple):
    """Some of the tests."""

    name: str
    arguments: tuple[str, ...]
    """For pytest."""
    folder: Path
    """Where pytest notes which tests failed, and how long each took."""

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-u", "-m", "pytest", "-o", f"cache_dir={self.folder / 'cache'}", *self.arguments]

    @property
    def times(self) -> Path:
        return self.folder / "times.xml"

    @property
    def failed(self) -> list[str]:
        found = self.folder / "cache" / "v" / "cache" / "lastfailed"
        return sorted(json.loads(found.read_text())) if found.exists() else []


class Run(NamedTuple):
    """A part that was started."""

    part: Part
    process: subprocess.Popen[bytes]
    log: IO[str]


def main() -> int:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        parts = plan(Path(folder))
        codes = run_all(parts)
        complete = len(codes) == len(parts) and all(code in (0, FAILED) for code in codes.values())
        again = [run_again(part) for part, code in codes.items() if code == FAILED] if complete else []
        print("\n" + "\n".join(slowest(parts)))
        print(f"total: {(time.monotonic() - begun) / 60:.1f} minutes", flush=True)
    return int(not complete or any(again))


def plan(folder: Path) -> list[Part]:
    """PARTS, and what none of them names."""
    found = [sorted({str(path) for pattern in part for path in Path().glob(pattern)}) for part in PARTS]
    assert all(found), "start this in the project's folder; or a pattern of PARTS names no file"
    rest = [f"--ignore={path}" for path in chain.from_iterable(found)]
    named = [*zip(map(" ".join, PARTS), found, strict=True), ("all others", rest)]
    return [Part(name, tuple(arguments), folder / str(number)) for number, (name, arguments) in enumerate(named)]


def run_all(parts: list[Part]) -> dict[Part, int]:
    """The exit code of each; fewer if the user interrupted."""
    waiting, running, codes = list(parts), list[Run](), dict[Part, int]()
    with ExitStack() as stack:
        try:
            while waiting or running:
                while waiting and len(running) < AT_ONCE:
                    log = stack.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
                    running.append(start(waiting.pop(0), log))
                for run in [run for run in running if run.process.poll() is not None]:
                    running.remove(run)
                    codes[run.part] = finish(run)
                time.sleep(0.2)
        except KeyboardInterrupt:  # every pytest got it, too, and cleans up
            for run in running:
                finish(run)
    return codes


def start(part: Part, log: IO[str]) -> Run:
    # SIGINT if this process is killed: pytest then cleans up.
    end_with_us = partial(die_with_parent, os.getpid(), signal.SIGINT)
    command = [*part.command, f"--junitxml={part.times}"]
    return Run(part, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, preexec_fn=end_with_us), log)


def finish(run: Run) -> int:
    """Waits for the part, prints its output, and returns its exit code."""
    code = run.process.wait()
    run.log.seek(0)
    print(f"\n{run.part.name}:\n{run.log.read()}", flush=True)
    return code


def run_again(part: Part) -> int:
    """Runs the tests of a part that failed once more; 0 if they pass now."""
    failed = part.failed
    print(f"\n{part.name}, once more what failed:", flush=True)
    code = subprocess.run([*part.command, "--last-failed", "--last-failed-no-failures=none"], check=False).returncode
    for name in failed if code == 0 else ():
        print(f"passed at the second try: {name}", flush=True)
    return code


def slowest(parts: Iterable[Part]) -> list[str]:
    """Lines about the tests that took the longest, their fixtures included."""
    cases = [case for part in parts if part.times.exists() for case in ElementTree.parse(part.times).iter("testcase")]
    times = sorted((float(case.get("time", 0)), f"{case.get('classname')}::{case.get('name')}") for case in cases)
    lines = [f"{taken:6.1f} s  {name}" for taken, name in times[: -SLOWEST - 1 : -1]]
    return [
        f"the slowest of {len(times)} tests, which took {sum(taken for taken, _ in times):.0f} s one by one:",
        *lines,
    ]


if __name__ == "__main__":
    sys.exit(main())
