"""The documentation site: it builds without a warning, its links lead somewhere, it loads nothing from elsewhere."""

import os
import re
import subprocess
import sys
import threading
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

import pytest

pytestmark = pytest.mark.skipif(
    find_spec("mkdocs") is None or find_spec("mkdocstrings") is None, reason="mkdocs is not installed"
)
ROOT = Path(__file__).parents[1]
LOADED = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src")}


class Links(HTMLParser):
    """What a page links to or loads, and the places in it."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[tuple[str, str, str]] = []
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append((tag, name, value))
            if name in ("id", "name") and value:
                self.places.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("site")
    ended = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(out)], cwd=ROOT, timeout=110, check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "WARNING" not in ended.stderr
    return out


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Links]:
    found = {}
    for path in site.rglob("*.html"):
        found[path] = Links()
        found[path].feed(path.read_text())
    return found


def test_every_page_is_there(site):
    names = {path.stem for path in (ROOT / "docs").glob("*.md")} | {"changelog", "contributing"}
    assert names <= {path.stem for path in site.glob("*.html")}


def test_links_lead_somewhere(pages):
    for page, found in pages.items():
        if page.name == "404.html":
            continue  # its links start at the root of a server
        for _, _, target in found.links:
            path, _, place = target.partition("#")
            if re.match(r"[a-z]+:", path):
                continue
            there = (page.parent / unquote(path)).resolve() if path else page
            there = there / "index.html" if there.is_dir() else there
            assert there.exists(), f"{page.name} -> {target}"
            if place and there in pages:
                assert place in pages[there].places or place == "__skip", f"{page.name} -> {target}"


def test_nothing_is_loaded_from_elsewhere(pages):
    for page, found in pages.items():
        outside = [value for tag, name, value in found.links if (tag, name) in LOADED and re.match("https?:|//", value)]
        assert outside == [], page.name


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing."""


@pytest.mark.timeout(300)
def test_the_pages_open_in_a_browser_and_can_be_searched(site):
    from support.report import browsing

    if browsing.CHROMIUM is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        root = f"http://127.0.0.1:{server.server_port}/"
        try:
            with browsing.browser_pages(root, f"blob:{root}") as open_page:
                for name in ("api", "promises", "index"):
                    page = open_page(f"{root}{name}.html")
                    broken = "() => [...document.images].filter((image) => !image.naturalWidth).length"
                    assert page.evaluate(broken) == 0
                    assert page.locator("h1").count() == 1
                # Key by key: the page looks at what is written there when a key is let go.
                page.get_by_role("textbox", name="Search").press_sequentially("softsync")
                page.locator(".md-search-result__item").first.wait_for(timeout=100_000)
        finally:
            server.shutdown()
            thread.join()


def test_the_reference_names_what_is_public(site):
    import unisono

    text = (site / "api.html").read_text()
    for name in unisono.__all__:
        if not name.startswith("__"):
            assert re.search(rf"id=\"unisono\.([\w.]+\.)?{name}\"", text), name
