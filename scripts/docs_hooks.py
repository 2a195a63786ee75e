"""Adds the changelog and CONTRIBUTING to the pages of the site.

    bash scripts/docs.sh

The one idea: every text exists once. Files outside docs/ are read where they are. Links between them and docs/ lead to
the pages of the site; links to other files of the repository, which are not on the site, become plain text. A broken
link stays as it is, and mkdocs, which is strict, fails.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""File of the repository -> page of the site."""
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are not in docs/."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Changes links of the repository into links of the site."""
    beside = page.file.src_uri in PAGES.values()
    here = ROOT if beside else ROOT / "docs" / Path(page.file.src_uri).parent

    def turn(found: re.Match[str]) -> str:
        picture, text, target, place = found[1], found[2], found[3], found[4] or ""
        if "://" in target or not (path := (here / target).resolve()).exists():
            return found[0]
        if path.is_relative_to(ROOT / "docs"):
            return f"{picture}[{text}]({path.relative_to(ROOT / 'docs')}{place})" if beside else found[0]
        name = str(path.relative_to(ROOT))
        return f"[{text}]({PAGES[name]}{place})" if name in PAGES else f"`{text.strip('`')}`"

    return _LINK.sub(turn, markdown)
