"""The whole suite as several runs of pytest, four of them at once: many tests wait, for processes, clusters or
time-outs, so four keep two cores busy.

    .venv-test/bin/python scripts/in_parts.py

What a part says comes when it is done. Tests that failed are then run once more, alone, with nothing beside them: what
passes now is named (`passed at the second try: NAME`), for it needs a cure. The exit code is 0 if all are green.
Arguments are for `python -m pytest` alone.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple

from unisono.launch.children import die_with_parent

AT_ONCE = 4
PARTS = (
    ("tests/faults", "tests/launch", "tests/comm"),
    ("tests/cli/test_[d-z]*.py",),
    ("tests/cluster/test_n*.py",),
    ("tests/loop", "tests/models", "tests/conformance"),
    ("tests/cluster/test_slurm_*.py",),  # one cluster at a time: it has the ports of SLURM
    ("tests/train", "tests/strategies"),
    ("tests/report", "tests/arena"),
    ("tests/cli/test_[a-c]*.py",),
)
"""Those that take long begin first; whatever none of them names is the last one."""


FAILED = 1
"""pytest's exit code if tests failed; others are not about single tests."""


class Part(NamedTuple):
    """Some of the tests."""

    name: str
    words: tuple[str, ...]
    """For pytest."""
    cache: Path
    """Where pytest notes which of them failed."""

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-u", "-m", "pytest", "-o", f"cache_dir={self.cache}", *self.words]

    @property
    def failed(self) -> list[str]:
        found = self.cache / "v" / "cache" / "lastfailed"
        return sorted(json.loads(found.read_text())) if found.exists() else []


class Run(NamedTuple):
    """A part that was started."""

    part: Part
    process: subprocess.Popen[bytes]
    log: IO[str]


def main() -> int:
    found = [sorted({str(path) for pattern in part for path in Path().glob(pattern)}) for part in PARTS]
    assert all(found), "from the project's folder, please; or a part has other files now"
    rest = [f"--ignore={path}" for path in chain.from_iterable(found)]
    named = [*zip(map(" ".join, PARTS), found, strict=True), ("all others", rest)]
    with tempfile.TemporaryDirectory() as folder:
        parts = [Part(name, tuple(words), Path(folder) / str(number)) for number, (name, words) in enumerate(named)]
        codes = run_all(parts)
        again = [part for part, code in codes.items() if code == FAILED]
        if any(code not in (0, FAILED) for code in codes.values()) or len(codes) < len(parts):
            return 1
        return int(any([run_again(part) for part in again]))


def run_all(parts: list[Part]) -> dict[Part, int]:
    """Their exit codes; fewer if they were interrupted."""
    waiting, running, codes = list(parts), list[Run](), dict[Part, int]()
    with ExitStack() as kept:
        try:
            while waiting or running:
                while waiting and len(running) < AT_ONCE:
                    log = kept.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
                    running.append(start(waiting.pop(0), log))
                for run in [run for run in running if run.process.poll() is not None]:
                    running.remove(run)
                    codes[run.part] = tell(run)
                time.sleep(0.2)
        except KeyboardInterrupt:  # all have got it, too, and clean up
            for run in running:
                tell(run)
    return codes


def run_again(part: Part) -> int:
    """The tests of a part that failed, alone; 0 if they pass now."""
    failed = part.failed
    print(f"\n{part.name}, what failed once more:", flush=True)
    code = subprocess.run([*part.command, "--last-failed", "--last-failed-no-failures=none"], check=False).returncode
    for name in failed if code == 0 else ():
        print(f"passed at the second try: {name}", flush=True)
    return code


def start(part: Part, log: IO[str]) -> Run:
    # SIGINT, should this process be killed: they clean up.
    ended = partial(die_with_parent, os.getpid(), signal.SIGINT)
    return Run(part, subprocess.Popen(part.command, stdout=log, stderr=subprocess.STDOUT, preexec_fn=ended), log)


def tell(run: Run) -> int:
    """Its exit code, when it has ended."""
    code = run.process.wait()
    run.log.seek(0)
    print(f"\n{run.part.name}:\n{run.log.read()}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
