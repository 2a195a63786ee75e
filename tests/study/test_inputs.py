"""Code, data and versions tell studies apart."""

import os

import pytest

from unisono.cli.studying import Plan
from unisono.errors import UserError
from unisono.measure.study_options import StudyOptions
from unisono.recipe import Recipe
from unisono.study import inputs
from unisono.study.cells import Cell
from unisono.study.inputs import inputs_of
from unisono.study.records import Records


def test_other_code_is_another_study(tmp_path):
    code = tmp_path / "own.py"
    code.write_text("K = 0")
    recipe = Recipe(model=f"{code}:net")
    before = inputs_of([recipe])
    os.utime(code, (1, 1))
    assert inputs_of([recipe]) == before  # touched, and the same
    code.write_text("K = 1")
    with Records.open(tmp_path / "s", "scale", before) as records:
        records.add({"digest": "1"})
    with pytest.raises(UserError, match=r"another study: studied is files .*own.py .* there, files .*own.py .* here"):
        Records.open(tmp_path / "s", "scale", inputs_of([recipe]))


@pytest.mark.parametrize("option", ["model", "data"])
def test_a_module_that_own_code_imports_belongs_to_it(tmp_path, option):
    (tmp_path / "own.py").write_text("import helper")
    (tmp_path / "helper.py").write_text("K = 0")
    (tmp_path / "other.py").write_text("K = 0")
    recipe = Recipe(**{option: f"{tmp_path}/own.py:make"})
    before = inputs_of([recipe])
    (tmp_path / "other.py").write_text("K = 1")
    assert inputs_of([recipe]) == before
    with Records.open(tmp_path / "s", "scale", before) as records:
        records.add({"digest": "1"})
    (tmp_path / "helper.py").write_text("K = 1")
    with pytest.raises(
        UserError, match=r"another study: studied is files .*helper.py .* there, files .*helper.py .* here"
    ):
        Records.open(tmp_path / "s", "scale", inputs_of([recipe]))


def test_a_plan_stays_where_it_was_begun(tmp_path):
    code = tmp_path / "own.py"
    code.write_text("K = 0")
    cells = [Cell({}, Recipe(data=f"{code}:data"))]
    plan, again = (Plan("compare", cells, StudyOptions()) for _ in range(2))
    path = plan.path
    code.write_text("K = 1")
    assert plan.path == path != again.path


@pytest.mark.parametrize("given", ["data", "data/x.npy", "data/sub", "data/corpus.txt:context=8"])
def test_data_that_changed_are_other_data(tmp_path, given):
    (tmp_path / "data/sub").mkdir(parents=True)
    files = [tmp_path / "data" / name for name in ("x.npy", "sub/y.npy", "corpus.txt")]
    for file in files:
        file.write_bytes(b"1")
    recipe = Recipe(data=f"{tmp_path}/{given}")
    before = inputs_of([recipe])
    assert before["files"] != {}
    assert inputs_of([recipe]) == before
    for file in files:
        file.write_bytes(b"12")
    assert inputs_of([recipe]) != before


def test_other_versions_are_another_study(monkeypatch):
    before = inputs_of([Recipe()])
    assert before["files"] == {}
    monkeypatch.setattr(inputs, "__version__", "0.0.0")
    assert inputs_of([Recipe()])["made_with"] != before["made_with"]
