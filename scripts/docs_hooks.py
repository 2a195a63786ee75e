"""What mkdocs does besides: the README, the changelog and CONTRIBUTING are pages of the site, too.

    bash scripts/docs.sh

The one idea: texts stand once. Files beside docs/ are read where they are; links between them and docs/ are turned to
the pages of the site, and links to other files of the repository, which the site has not, become plain text. A link
that leads nowhere is left as it is, and mkdocs, which is strict, ends with it.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "manual.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""File of the repository -> page of the site."""
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that do not lie in docs/."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links, from where the text lies in the repository to where it is on the site."""
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
