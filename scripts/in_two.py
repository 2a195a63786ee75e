"""The whole suite as two runs of pytest at once: many tests wait for processes to start, so two keep two cores busy.

    .venv-test/bin/python scripts/in_two.py

What the first run says comes when both are done, what the second says comes at once. The exit code is 0 if both are
green. Arguments are for `python -m pytest` alone.
"""

import os
import signal
import subprocess
import sys
import tempfile
from functools import partial

from unisono.launch.children import die_with_parent

ASIDE = ("tests/cluster", "tests/conformance", "tests/comm", "tests/doctor", "tests/faults", "tests/launch")
"""Clusters, transports and faults: about half of the time."""


def main() -> int:
    pytest = [sys.executable, "-u", "-m", "pytest"]
    with tempfile.TemporaryFile("w+") as log:
        # SIGINT, should this process be killed: it cleans up.
        ended = partial(die_with_parent, os.getpid(), signal.SIGINT)
        aside = subprocess.Popen([*pytest, *ASIDE], stdout=log, stderr=subprocess.STDOUT, preexec_fn=ended)
        rest = subprocess.Popen([*pytest, *(f"--ignore={folder}" for folder in ASIDE)], preexec_fn=ended)
        try:
            codes = [rest.wait(), aside.wait()]
        except KeyboardInterrupt:  # both have got it, too, and clean up
            codes = [rest.wait(), aside.wait(), 1]
        log.seek(0)
        print(f"\n{' '.join(ASIDE)}:\n{log.read()}")
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
