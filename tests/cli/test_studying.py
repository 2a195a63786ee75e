"""What commands that are studies show: names of the user's, which may look like rich's markup, as they are."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
from study_records import record_of

from unisono.cli.compare import show
from unisono.recipe import Recipe
from unisono.study.cells import cells_of, over


@pytest.mark.parametrize("name", ["runs/[old]/a", "runs/[/old]/a"])
def test_names_in_brackets_are_shown_as_they_are(name, tmp_path, capsys):
    cells = cells_of(Recipe(), [over(f"data={name},digits")])
    show(cells, ["data"], [record_of(cell, 0, 100.0) for cell in cells], tmp_path)
    table, _, _ = capsys.readouterr().out.partition("Fastest")
    assert name in table
