"""The secret address of a live page, kept from other users: in a file beside the run, or opened in a browser.

    with address_file("http://127.0.0.1:40123/TOKEN/", Path("runs/mine")) as path: print(path)
    with open_in_browser("http://127.0.0.1:40123/TOKEN/", desktop=True): ...

The one idea: other users must not see the token. What a batch job prints ends in a file that others often may read, and
stays there; so the token is kept in a file that only its owner may read, beside the run, where the user finds it from
any machine, for as long as the page is served. If the run directory cannot be written (a stranger's), a fresh private
directory takes its place. Every user of the machine can read a browser's command line, so the browser is given a
private file that leads to the address. Both files go when the block is left.

Limits: a process that is killed by SIGKILL leaves the file; its token opens nothing any more. On a file system without
modes every user who sees the run may read it. A browser that may not read temporary files (some that are packed as
snaps) shows an error; the address is printed, or kept in a file, anyway.
"""

import html
import tempfile
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from unisono.environment.os_environ import forget_secret
from unisono.files import create_file, read_file, write_file
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


@contextmanager
def open_in_browser(address: str, *, desktop: bool) -> Iterator[None]:
    """desktop: whether there is one; nothing happens otherwise, for browsers of terminals would take over this one."""
    if not desktop:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="unisono-") as folder:
        page = Path(folder) / "watch.html"
        leads = f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(address)}">\n'
        create_file(page, leads, mode=0o600)
        # Some browsers are waited for until they are closed.
        threading.Thread(target=_open, args=(page.as_uri(),), daemon=True, name="browser").start()
        yield


def _open(address: str) -> None:
    forget_secret()  # the browser gets this environment
    with suppress(webbrowser.Error, OSError):
        webbrowser.open(address)
