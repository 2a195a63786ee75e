"""The whole suite as three runs of pytest at once: many tests wait, for processes, clusters or time-outs, so three keep
two cores busy.

    .venv-test/bin/python scripts/in_parts.py

What one of them says comes at once, what the others say when all are done. The exit code is 0 if all are green.
Arguments are for `python -m pytest` alone.
"""

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from functools import partial

from unisono.launch.children import die_with_parent

ASIDE = (
    ("tests/cluster", "tests/comm", "tests/doctor"),
    ("tests/cli", "tests/conformance", "tests/faults", "tests/launch"),
)
"""Clusters, which wait most; commands and faults. All three parts take about the same time."""


def main() -> int:
    pytest = [sys.executable, "-u", "-m", "pytest"]
    # SIGINT, should this process be killed: they clean up.
    ended = partial(die_with_parent, os.getpid(), signal.SIGINT)
    rest = [f"--ignore={folder}" for folders in ASIDE for folder in folders]
    with ExitStack() as kept:
        logs = [kept.enter_context(tempfile.TemporaryFile("w+")) for _ in ASIDE]
        runs = [
            subprocess.Popen([*pytest, *folders], stdout=log, stderr=subprocess.STDOUT, preexec_fn=ended)
            for folders, log in zip(ASIDE, logs, strict=True)
        ]
        runs.append(subprocess.Popen([*pytest, *rest], preexec_fn=ended))
        try:
            codes = [run.wait() for run in runs]
        except KeyboardInterrupt:  # all have got it, too, and clean up
            codes = [*(run.wait() for run in runs), 1]
        for folders, log in zip(ASIDE, logs, strict=True):
            log.seek(0)
            print(f"\n{' '.join(folders)}:\n{log.read()}")
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
