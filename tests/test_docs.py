"""The documents tell the truth: links lead somewhere, Python examples run, commands of `unisono` parse."""

import ast
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
    from unisono.measure.allreduce_bench import BenchOptions, plan

    monkeypatch.setattr("unisono.launch.connect.find_spec", lambda name: True)
    words = command.of_unisono
    _, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    if words[0] == "bench":
        assert plan(*bound.args or [BenchOptions()])


SOURCE = ROOT / "src/unisono"
FOLDERS = sorted({path.parent.relative_to(SOURCE) for path in SOURCE.rglob("*.py")} - {Path()})


def test_the_architecture_page_names_every_folder():
    """With its whole path, or below the one that is named."""

    def is_named(path: Path) -> bool:
        below = f"`{path.parent}/`" in PAGE and f"`{path.name}/`" in PAGE
        return f"`{path}/`" in PAGE or below or path.parts[0] in WHOLE

    assert [path for path in FOLDERS if not is_named(path)] == []


WHOLE = ("report", "measure", "doctor")
"""Folders that the page describes as a whole."""


def test_the_architecture_page_speaks_of_files_that_exist():
    named = re.findall(r"`([a-z_]+(?:/[\w.]+)+/?)`", PAGE)
    assert len(named) > 60
    for name in named:
        assert any((root / name).exists() for root in (ROOT, ROOT / "src/unisono")), name


USERS_FILES = {
    "file.py", "mine.py", "net.py", "numpy.py", "path.py", "rows.py", "sitecustomize.py", "parts/__init__.py",
    "parts/attention.py", "tools/prep.py",
}  # fmt: skip
"""Names in docstrings that stand for files of users."""


def docstrings(path: Path) -> str:
    """All texts of a file that are statements: those of modules, classes, functions, fields and constants."""
    statements = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Expr)]
    texts = [node.value for node in statements if isinstance(node, ast.Constant)]
    return "\n".join(text for text in texts if isinstance(text, str))


def test_docstrings_speak_of_files_that_exist():
    """By their names, or by the last folders with them."""
    files = [path for home in ("src", "tests", "benchmarks", "scripts") for path in (ROOT / home).rglob("*.py")]
    known = {"/".join(path.parts[-length:]) for path in files for length in range(1, 8)}
    stale = {
        (name, str(path.relative_to(ROOT)))
        for path in files
        for name in re.findall(r"(?<![\w./~-])(?:[a-z_]\w*/)*[a-z_]\w*\.py\b", docstrings(path))
        if name not in known | USERS_FILES
    }
    assert stale == set()


def test_the_architecture_page_has_few_terms_and_short_walks():
    terms = re.search(r"## Terms\n(.*?)\n## ", PAGE, re.DOTALL)[1]
    assert terms.count("\n| ") - 2 <= 25
    walk = re.search(r"## The walk of a batch\n(.*?)\n## ", PAGE, re.DOTALL)[1]
    assert 3 < len(re.findall(r"^\d+\. ", walk, re.MULTILINE)) <= 12


def test_the_scripts_of_the_readme_exist():
    for name in re.findall(r"bash (scripts/[\w.]+)", (ROOT / "README.md").read_text()):
        assert (ROOT / name).exists()
