"""The whole suite as several runs of pytest, four of them at once: many tests wait, for processes, clusters or
time-outs, so four keep two cores busy.

    .venv-test/bin/python scripts/in_parts.py

What a part says comes when it is done. The exit code is 0 if all are green. Arguments are for `python -m pytest` alone.
"""

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


class Run(NamedTuple):
    """A part that was started."""

    name: str
    process: subprocess.Popen[bytes]
    log: IO[str]


def main() -> int:
    found = [sorted({str(path) for pattern in part for path in Path().glob(pattern)}) for part in PARTS]
    assert all(found), "from the project's folder, please; or a part has other files now"
    rest = [f"--ignore={path}" for path in chain.from_iterable(found)]
    waiting = [*zip(map(" ".join, PARTS), found, strict=True), ("all others", rest)]
    running: list[Run] = []
    codes: list[int] = []
    with ExitStack() as kept:
        try:
            while waiting or running:
                while waiting and len(running) < AT_ONCE:
                    log = kept.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
                    running.append(start(*waiting.pop(0), log))
                for run in [run for run in running if run.process.poll() is not None]:
                    running.remove(run)
                    codes.append(tell(run))
                time.sleep(0.2)
        except KeyboardInterrupt:  # all have got it, too, and clean up
            codes = [*map(tell, running), 1]
    return int(any(codes))


def start(name: str, words: list[str], log: IO[str]) -> Run:
    # SIGINT, should this process be killed: they clean up.
    ended = partial(die_with_parent, os.getpid(), signal.SIGINT)
    command = [sys.executable, "-u", "-m", "pytest", *words]
    return Run(name, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, preexec_fn=ended), log)


def tell(run: Run) -> int:
    """Its exit code, when it has ended."""
    code = run.process.wait()
    run.log.seek(0)
    print(f"\n{run.name}:\n{run.log.read()}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
