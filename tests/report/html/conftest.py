"""The report of a long run, which takes seconds to make: made once."""

from pathlib import Path

import pytest

import unisono
from support.report.made_run import make
from unisono.report.html.document import document


@pytest.fixture(scope="session")
def long_page(tmp_path_factory) -> Path:
    """3,000 epochs of one step on 16 ranks."""
    folder = tmp_path_factory.mktemp("long")
    path = folder / "report.html"
    path.write_text(document([unisono.load(make(folder / "run", epochs=3000, ranks=16))]))
    return path
