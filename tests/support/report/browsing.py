"""A real browser for tests: Debian's chromium, driven by playwright."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


@contextmanager
def browser_pages(*allowed: str) -> Iterator[Callable[..., Any]]:
    """Gives a function that opens an address; in the end nothing was logged as an error, and nothing was asked for but
    addresses that start with one of `allowed`."""
    faults: list[str] = []
    asked: list[str] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)

        def open_page(address: str, width: int = 1200, scheme: str = "light") -> Any:
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page.set_default_timeout(100_000)
            page.on("console", lambda message: faults.append(message.text) if message.type != "log" else None)
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.on("request", lambda request: asked.append(request.url))
            page.goto(address)
            return page

        try:
            yield open_page
        finally:
            browser.close()
    for thread in threading.enumerate():
        if thread.name.startswith("asyncio-waitpid"):  # playwright's: it ends with the process that it waits for
            thread.join(30.0)
    assert faults == []
    assert [url for url in asked if not url.startswith((*allowed, "data:,"))] == []


def figure(page: Any, title: str) -> Any:
    return page.locator("figure", has=page.locator("figcaption", has_text=title)).first
