"""`unisono train --watch`: the live page of a run, served by a process beside it for as long as the run lasts.

    with live_page(record.path): ...

The one idea: the page is `unisono watch` itself, started as a child, for the process that watches ranks has no threads.
It ends with the run, after whoever looks at it has seen how it ended, and it cannot outlive this process. A page that
does not start is said, and is no reason to stop the training.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from unisono.environment.os_environ import child_environment
from unisono.errors import CommTimeout
from unisono.launch.launcher_commands import python
from unisono.safe_print import print
from unisono.supervise.children import Subprocess

START_S = 20.0
END_S = 15.0


@contextmanager
def live_page(run: Path) -> Iterator[None]:
    """Prints the address of the page; leaving the block waits for the page's last look, a few seconds at most."""
    with ExitStack() as stack:
        page = _start(stack, run)
        try:
            yield
        finally:
            if page is not None:
                with suppress(CommTimeout):  # a look at a long run takes its time; leaving ends it
                    page.wait(END_S)


def may_show_token() -> bool:
    """Whether the output is a terminal: others may often read what a batch job prints. It may be closed as well."""
    return sys.stdout is not None and sys.stdout.isatty()


def _start(stack: ExitStack, run: Path) -> Subprocess | None:
    token = ["--print-token"] if may_show_token() else []
    command = python("-m", "unisono", "watch", "--until-end", *token, "--", str(run))
    page = None
    try:
        page = stack.enter_context(Subprocess(command, child_environment(None), stderr=subprocess.DEVNULL))
        line = next(page.lines(START_S))
    except (StopIteration, CommTimeout, OSError, subprocess.SubprocessError):  # no process, no descriptors, too slow
        print(f"unisono: the live page could not be served\nHINT: try unisono watch {run}", file=sys.stderr)
    else:
        print(line, flush=True)
    return page
