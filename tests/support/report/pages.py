"""What the page of runs and studies holds."""

from pathlib import Path

import unisono
from unisono.report.html.document import sections_of

ABOUT = ["How to reproduce it", "Recipe", "Machine"]
"""The last sections of what knows how it came about."""


def titles_of(*paths: Path) -> list[str]:
    return [section.title for section in sections_of([unisono.load(path) for path in paths])]
