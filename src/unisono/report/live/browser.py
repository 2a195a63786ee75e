"""Opening a secret address in the user's browser, where there is a desktop.

    with open_in_browser("http://127.0.0.1:40123/TOKEN/", desktop=True): ...

The one idea: what is on a browser's command line can be read by every user of the machine, so the browser is given a
file that only its owner may read, and that leads to the address. The file goes when the block is left.

Limits: a browser that may not read temporary files (some that are packed as snaps) shows an error; the address is
printed, or kept in a file, anyway.
"""

import html
import tempfile
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from unisono.environment.variables import forget_secret
from unisono.files import create_file


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
