"""The secret address of a live page in a file that only its owner may read, for output that others may read.

    with address_file("http://127.0.0.1:40123/TOKEN/", Path("runs/mine")) as path: print(path)

The one idea: what a batch job prints ends in a file that others often may read, and stays there; so the token is kept
beside the run instead, where the user finds it from any machine, for as long as the page is served. If the run
directory cannot be written (a stranger's), a fresh private directory takes its place.

Limits: a process that is killed by SIGKILL leaves the file; its token opens nothing any more. On a file system without
modes everybody who sees the run may read it.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from unisono.files import read_file, write_file
from unisono.storage.run_files import LIVE_PAGE


@contextmanager
def address_file(address: str, run: Path) -> Iterator[Path]:
    """The file; it goes when the block is left, unless another page of the run has put its own address there."""
    text = f"{address}\n"
    with ExitStack() as stack:
        path = run / LIVE_PAGE
        try:
            write_file(path, text, mode=0o600, durable=False)
        except OSError:
            path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="unisono-"))) / LIVE_PAGE
            write_file(path, text, mode=0o600, durable=False)
        try:
            yield path
        finally:
            with suppress(OSError):
                if read_file(path, len(text), follow_links=False) == text.encode():
                    path.unlink()
