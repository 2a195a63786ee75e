"""Runs a script, or -m and a module, and fails if threads of gloo are still running when its interpreter ends.

    torchrun --nproc-per-node 2 tests/support/workers/quiet_end.py examples/02_ddp.py
    torchrun --nproc-per-node 2 tests/support/workers/quiet_end.py -m unisono train --strategy ddp

Such a thread may just then let go of a tensor, for which it needs the interpreter's lock; that it cannot have any more,
and the process aborts (exit code -6). It takes a busy machine to see it happen; that there are threads is seen always.
"""

import atexit
import os
import runpy
import sys
from contextlib import suppress
from pathlib import Path

EXITING = 0x4
"""Of a task's flags: it has ended, and is listed until it has a core once more."""


def left() -> list[str]:
    """Names of gloo's threads."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            name, _, fields = (task / "stat").read_text().partition("(")[2].rpartition(") ")
            if "gloo" in name and not int(fields.split()[6]) & EXITING:
                found.append(name)
    return found


def check() -> None:
    if names := left():
        sys.stdout.flush()
        print(f"threads outlive the script: {names}", file=sys.stderr, flush=True)
        os._exit(70)


if __name__ == "__main__":
    atexit.register(check)  # the first to be registered is the last to be called
    if sys.argv[1] == "-m":
        module, sys.argv = sys.argv[2], sys.argv[2:]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = sys.argv[1:]
        kept = runpy.run_path(sys.argv[0], run_name="__main__")  # a script's own names live until its end
