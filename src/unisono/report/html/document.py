"""The report: runs in, one HTML file out that needs nothing else; also a cell of a notebook.

    write_report(Path("report.html"), [unisono.load("runs/mine")], given=False)
    notebook_html(unisono.load("runs/mine"))

The one idea: the page is a list of sections (`sections/`), each of which looks at the runs and gives a `Section` or
None; to add one, write a function and add its row. `content` is the part that changes while a run goes on: a live page
sends it again, and the same code draws it. A file is replaced only if it is such a page already.

Style and charts are part of the page, and its policy (CSP) lets nothing else be loaded or executed, so what slipped
through the escapes in `markup.py` would still be dead. Charts are ours (`assets/`, 450 lines, 22 kB) and not those of
bokeh or plotly (1 to 4 MB a page, and more packages to keep up with) because a report is mailed and kept for years.

Limits: without JavaScript there are texts and tables, no charts. A notebook has neither our style nor our scripts, so a
cell shows figures, sentences and a picture of the losses.
"""

import base64
import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module, resources
from pathlib import Path
from typing import Any

from unisono import __version__
from unisono.errors import UserError
from unisono.files import check_entry, open_file, write_file
from unisono.report.html.blocks import Section, Table, Text, Tiles
from unisono.report.html.downsampling import quiet
from unisono.report.html.markup import anchor, brief_html, escape, html_of
from unisono.report.html.sections import SECTIONS, outcome_and_advice
from unisono.report.run.load import LOSSES, Run
from unisono.report.run.loss_plot import png_of

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
    """The sections that are not empty."""
    made = (_section(name, place, runs) for name, place in SECTIONS.items())
    return [section for section in made if section is not None]


def _section(name: str, place: str, runs: Sequence[Run]) -> Section | None:
    module, _, function = place.partition(":")
    make: Any = getattr(import_module(f"unisono.report.html.sections.{module}"), function)
    try:
        with quiet():
            found: Section | None = make(runs)
    except Exception as error:  # unforeseen records: the other sections are shown
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


def write_report(target: Path, runs: Sequence[Run], *, given: bool) -> None:
    """Writes the page. given: the user chose the name."""
    check_target(target, given=given)
    write_page(target, document(runs))


def check_target(target: Path, *, given: bool) -> None:
    """Refuses to replace anything but a report, before work is done."""
    if os.path.isdir(target):  # False for a name that no file system takes
        raise UserError(f"--out {target} is a directory", hint="give the name of a file, such as report.html")
    named, hint = f"{'--out ' if given else ''}{target}", "give another name with --out, or remove it"
    with suppress(FileNotFoundError, NotADirectoryError):
        try:
            check_entry(target, "file")
        except NotADirectoryError:
            raise
        except OSError as error:
            raise UserError(f"{named} {error.strerror}", hint=hint) from None
        with open_file(target, follow_links=False) as file:
            first = file.read(200)
        if first and MARKER.encode() not in first:
            raise UserError(f"{named} exists and is no report of unisono's", hint=hint)


def write_page(target: Path, page: str) -> None:
    """The whole file or none."""
    try:
        write_file(target, page, durable=False)
    except OSError as error:
        raise UserError(
            f"{target} cannot be written: {error.strerror}", hint="give a place that you may write to with --out"
        ) from None


def notebook_html(run: Run) -> str:
    """HTML that stands alone."""
    found = outcome_and_advice.section([run])
    blocks = [] if found is None else found.blocks
    tiles = [tile for block in blocks if isinstance(block, Tiles) for tile in block.tiles]
    texts = [block for block in blocks if isinstance(block, Text)]
    table = [Table(["", "", ""], [list(tile) for tile in tiles])] if tiles else []
    losses = png_of(run.plot()) if any(run.metrics.get(name) is not None for name in LOSSES) else b""
    return brief_html(f"Run {run.path}", [*table, *texts, *map(Text, run.problems)], losses)
