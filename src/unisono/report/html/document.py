"""The page: runs in, one HTML file out that needs nothing else.

    Path("report.html").write_text(document([unisono.load("runs/mine")]))

The one idea: the page is a list of sections (`sections/`), each of which looks at the runs and says something or
nothing; adding one is adding a file and its name. `content` is the part that changes while a run goes on: a live page
sends it again, and the same code draws it.

Style and charts stand in the page, and its policy (CSP) lets nothing else be loaded or executed, so what slipped
through the escapes in `markup.py` would still be dead. Charts are ours (`assets/`, 450 lines, 22 kB) and not those of
bokeh or plotly (1 to 4 MB a page, and more packages to keep up with) because a report is mailed and kept for years.

Limits: without JavaScript there are texts and tables, no charts.
"""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import import_module, resources
from typing import Any

from unisono import __version__
from unisono.report.html.blocks import Section, Text
from unisono.report.html.downsampling import quiet
from unisono.report.html.markup import anchor, escape, html_of
from unisono.report.html.sections import SECTIONS
from unisono.report.run.load import Run

MARKER = "<!-- unisono report -->"
"""In the first line of every page: a file that has it may be replaced by another."""
SCRIPTS = ("scales.js", "plot.js", "lines.js", "bars.js", "flame.js", "table.js", "page.js")
"""In this order: each uses those before it."""
LIVE_SCRIPTS = (*SCRIPTS[:-1], "live.js", SCRIPTS[-1])


def document(runs: Sequence[Run], *, live: bool = False) -> str:
    """The whole page, for at least one run. live: one that asks its server for news (`report/live`)."""
    sections = sections_of(runs)
    names = ", ".join(run.name for run in runs)
    links = "".join(f'<a href="#{anchor(section.title)}">{escape(section.title)}</a>' for section in sections)
    style, script = _code(live)
    told = "This page is live." if live else "This page holds everything it shows and loads nothing."
    return (
        f'<!doctype html>{MARKER}\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(live=live)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(names)} - unisono</title><style>{style}</style></head>\n<body>'
        f"<header><h1><small>unisono {'watch' if live else 'report'}</small>{escape(names)}</h1>"
        f"{'<p id=live role=status>Live</p>' if live else ''}"
        f'<button type="button" id="theme">Theme</button><nav>{links}</nav></header>\n'
        f"<main>{''.join(map(html_of, sections))}</main>\n"
        f"<noscript><p>The charts need JavaScript; texts and tables do not.</p></noscript>"
        f"<footer>unisono {escape(__version__)}. {told}</footer>"
        f"<script>{script}</script></body></html>\n"
    )


def policy(*, live: bool) -> str:
    """The page's Content-Security-Policy: nothing is executed but its own code, and nothing loaded or sent, but for the
    news of a live page. Only a header can forbid frames around a page, so that is left to the server."""
    style, script = _code(live)
    news = "; connect-src 'self'" if live else ""
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; base-uri 'none'; "
        f"form-action 'none'{news}"
    )


def content(runs: Sequence[Run]) -> str:
    """What stands in <main>: all that changes while a run goes on."""
    return "".join(html_of(section) for section in sections_of(runs))


def sections_of(runs: Sequence[Run]) -> list[Section]:
    """Those that have something to say."""
    made = (_section(name, runs) for name in SECTIONS)
    return [section for section in made if section is not None]


def _section(name: str, runs: Sequence[Run]) -> Section | None:
    module: Any = import_module(f"unisono.report.html.sections.{name}")
    try:
        with quiet():
            found: Section | None = module.section(runs)
    except Exception as error:  # records nobody thought of: the other sections are shown
        told = f"This section could not be made of these records: {type(error).__name__}: {error}"
        return Section(name.capitalize(), [Text(told, "warning")])
    return found


@cache
def _code(live: bool) -> tuple[str, str]:
    """Style and script."""
    return asset("page.css"), "\n".join(asset(name) for name in (LIVE_SCRIPTS if live else SCRIPTS))


def asset(name: str) -> str:
    """A file of `assets/`."""
    return (resources.files("unisono.report.html") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
