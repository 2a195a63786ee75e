"""The documents tell the truth: links lead somewhere, Python examples run, commands of `unisono` parse."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.documented import Command, commands

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/architecture.md").read_text()
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
PLAIN = [page for page in PAGES if page.name not in ("CHANGELOG.md", "architecture.md")]
"""Pages in plain English. The changelog is history, and the architecture page names files of the code."""
PRIVATE_WORDS = re.compile(
    r"\b(courier|desk|errand|outpost|clerk|farewell|vouch\w*|pens|bells|canon|vigil|parcel|journeys?|lookout|crew"
    r"|roll call|whoever|nobody|somebody|everybody|told|mends|what there is|is no run|the bits are others)\b",
    re.IGNORECASE,
)
README_WORDS, GLOSSARY_TERMS = 1000, 25


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target, place in re.findall(r"\]\(([^)#\s]*)(#[^)]*)?\)", page.read_text()):
        if not target.startswith("http"):
            there = page.parent / target if target else page
            assert there.exists(), f"{page.name} links to {target}"
            if place:
                assert place in places(there), f"{page.name} links to {target}{place}"


def places(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {"#" + re.sub(r"[^\w\s-]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().split()) <= README_WORDS


@pytest.mark.parametrize("page", PLAIN, ids=lambda page: page.name)
def test_no_private_words(page):
    found = {match[0] for match in PRIVATE_WORDS.finditer(page.read_text())}
    assert found == set(), f"{page.name}: say it in the words of docs/glossary.md"


def test_the_glossary_is_short():
    rows = [line for line in (ROOT / "docs/glossary.md").read_text().splitlines() if line.startswith("| ")]
    assert 0 < len(rows) - 2 <= GLOSSARY_TERMS


def test_every_page_is_in_the_navigation():
    named = set(re.findall(r": ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert named == {page.name for page in (ROOT / "docs").glob("*.md")} | {"changelog.md", "contributing.md"}


def test_the_example_of_ranks_and_arrays_runs():
    (code,) = re.findall(r"```python\n(import.*?)```", (ROOT / "docs/python.md").read_text(), re.DOTALL)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.strip() == "[6.0, 6.0, 6.0, 6.0]"


def test_the_examples_of_the_notebook_page_run(tmp_path):
    """They are one program. Blocks with the comment `checked` stand for cells of one notebook."""
    page = (ROOT / "docs/notebooks.md").read_text()
    cells = re.findall(r"<!-- checked: [\w.]+ -->\n```python\n(.*?)```", page, re.DOTALL)
    assert len(cells) == page.count("```python")
    (tmp_path / "cells.py").write_text("\n".join(cells))
    command = [sys.executable, "cells.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr


def shown() -> list[Command]:
    return [command for page in PAGES for command in commands(page) if command.of_unisono]


@pytest.mark.parametrize("command", shown(), ids=lambda command: command.text[:60])
def test_the_commands_that_are_shown_are_valid(command, monkeypatch):
    from unisono.cli.main import app
    from unisono.measure.bench import BenchOptions, plan

    monkeypatch.setattr("unisono.launch.connect.find_spec", lambda name: True)
    words = command.of_unisono
    _, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    if words[0] == "bench":
        assert plan(*bound.args or [BenchOptions()])


FOLDERS = sorted({path.parent for path in (ROOT / "src/unisono").rglob("*.py")} - {ROOT / "src/unisono"})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(ROOT / "src/unisono")))
def test_the_architecture_page_names_every_folder(folder):
    """With its whole path, or below the one that is named."""
    path = folder.relative_to(ROOT / "src/unisono")
    assert f"`{path}/`" in PAGE or (f"`{path.parent}/`" in PAGE and f"`{path.name}/`" in PAGE) or path.parts[0] in WHOLE


WHOLE = ("report", "measure", "doctor")
"""Folders that the page describes as a whole."""


def test_the_architecture_page_speaks_of_files_that_exist():
    named = re.findall(r"`([a-z_]+(?:/[\w.]+)+/?)`", PAGE)
    assert len(named) > 60
    for name in named:
        assert any((root / name).exists() for root in (ROOT, ROOT / "src/unisono")), name


def test_the_architecture_page_has_few_terms_and_short_walks():
    terms = re.search(r"## Terms\n(.*?)\n## ", PAGE, re.DOTALL)[1]
    assert terms.count("\n| ") - 2 <= 25
    walk = re.search(r"## The walk of a batch\n(.*?)\n## ", PAGE, re.DOTALL)[1]
    assert 3 < len(re.findall(r"^\d+\. ", walk, re.MULTILINE)) <= 12


def test_the_scripts_of_the_readme_exist():
    for name in re.findall(r"bash (scripts/[\w.]+)", (ROOT / "README.md").read_text()):
        assert (ROOT / name).exists()
