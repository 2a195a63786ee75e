"""`unisono ARGUMENTS` in a forked process: what a real one says and leaves, without the half second of its imports.

    ended = forked("train", "--epochs", "0", cwd=tmp_path); ended.returncode, ended.stderr

Limits: for commands that end before they start anything, mistakes above all. What is imported here, torch say, is
imported there too. That `python -m unisono` starts at all is for other tests.
"""

import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from unisono.cli.main import main
from unisono.supervise import children

TIMEOUT_S = 60.0


def forked(
    *arguments: str, cwd: Path | None = None, before: Callable[[], None] = lambda: None
) -> subprocess.CompletedProcess[str]:
    """before: called in the forked process, before the command."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:

        def body() -> int:
            for fd, file in ((1, out), (2, err)):
                os.dup2(file.fileno(), fd)
            sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
            os.chdir(cwd or Path())
            before()
            sys.argv = ["unisono", *arguments]
            try:
                main()
            except SystemExit as ended:
                return int(ended.code or 0)
            return 0

        with children.defer_signals():
            pid = children.fork_child(body)
        code = _end_of(pid)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(["unisono", *arguments], code, out.read(), err.read())


def _end_of(pid: int) -> int:
    """The exit code of a child, which is ended if it takes too long."""
    pidfd = os.pidfd_open(pid)
    try:
        ends = select.poll()
        ends.register(pidfd, select.POLLIN)
        if not ends.poll(TIMEOUT_S * 1000):
            children.end({pid: pidfd})
            raise TimeoutError(f"the command did not end within {TIMEOUT_S} s")
        return os.waitstatus_to_exitcode(children.reap(pid))
    finally:
        os.close(pidfd)
