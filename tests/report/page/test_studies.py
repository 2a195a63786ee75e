"""Sections of `unisono scale` and `unisono compare`, from rows as these write them, and from damaged ones."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from study_records import failed, record_of

import unisono
from unisono.measure.scale import cells_of_grid
from unisono.recipe import Recipe
from unisono.report import compare, scale
from unisono.report.page.document import document, sections_of
from unisono.study.cells import cells_of, over

EVIL = "<img src=x onerror=alert(1)>"


def scale_rows() -> list[dict]:
    cells = cells_of_grid(Recipe(), "1x1,1x2,1x4", weak=False)
    records = [record_of(cell, repeat, 100.0 * cell.recipe.ranks**0.8) for cell in cells for repeat in range(2)]
    return scale.rows_of(cells, records, weak=False, cores=8)


def compare_rows() -> list[dict]:
    cells = cells_of(Recipe(), [over(f"strategy=sync,{EVIL}")])
    return compare.rows_of(cells, [record_of(cells[0], 0, 100.0), failed(cells[1], EVIL)])


def page_of(folder: Path, name: str, rows: list) -> str:
    (folder / f"{name}.json").write_text(json.dumps(rows))
    return document([unisono.load(folder)])


def test_scaling_is_charts_a_table_and_words(tmp_path):
    page = page_of(tmp_path, "scale", scale_rows())
    assert [section.title for section in sections_of([unisono.load(tmp_path)])] == ["Scaling"]
    for text in ("Speed-up", "Training time", "Accuracy", "Amdahl: a serial share of", "Knee: ", "Bits: one weights_"):
        assert text in page, text
    assert unisono.load(tmp_path / "scale.json").studies["scale"][0]["grid"] == "1x1"


def test_a_comparison_is_a_table_and_words_and_no_markup_of_a_stranger(tmp_path):
    page = page_of(tmp_path, "compare", compare_rows())
    assert "Comparison" in page
    assert "&lt;img src=x" in page
    assert "<img" not in page


@pytest.mark.parametrize("name", ["scale", "compare"])
@pytest.mark.parametrize(
    "damage",
    [
        {"world": 0}, {"world": "two"}, {"rates": [1]}, {"rates": {"0": -1}}, {"train_s": "x"}, {"train_s": None},
        {"labels": "x"}, {"labels": {"strategy": 3}}, {"weights_sha256": 5}, {"ratio": "x"}, {"speed_up": "x"},
        {"grid": 3}, {"cell": 3}, {"weak": "no"}, {"reason": 3}, {"repeats": None},
        {"test_accuracy": "x"}, {"energy_j": [1]}, {"wall_s": "x"}, {"speed_up_low": "x"}, {"sync_share": {}},
    ],
)  # fmt: skip
def test_rows_that_are_damaged_are_left_out(name, damage, tmp_path):
    rows = {"scale": scale_rows, "compare": compare_rows}[name]()
    page = page_of(tmp_path, name, [rows[0] | damage, *rows[1:], {}, {"reason": "x"}])
    assert "could not be made" not in page
