"""A command on a terminal of its own, for tests: what it shows there.

>>> on_terminal(["echo", "hello"], "stdout")
(0, b'hello\\r\\n')
"""

import os
import pty
import subprocess
from collections.abc import Callable, Sequence


def on_terminal(
    command: Sequence[str], *streams: str, seen: Callable[[bytes], None] = lambda shown: None
) -> tuple[int, bytes]:
    """Its exit code, and all that it wrote to `streams` (stdout, stderr); seen: told all that there is so far."""
    leader, follower = pty.openpty()
    shown = b""
    try:
        outputs = {"stdout": subprocess.DEVNULL, "stderr": None} | dict.fromkeys(streams, follower)
        with subprocess.Popen(command, **outputs) as process:
            os.close(follower)
            while True:
                try:
                    data = os.read(leader, 4096)
                except OSError:  # the other end is closed
                    break
                if not data:
                    break
                shown += data
                seen(shown)
        return process.returncode, shown
    finally:
        os.close(leader)
