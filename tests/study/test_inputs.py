"""Code, data and versions tell studies apart."""

import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import pytest

import unisono
from unisono.cli.common.study_command import StudyPlan
from unisono.errors import UserError
from unisono.measure.options import StudyOptions
from unisono.recipe import Recipe
from unisono.study import inputs
from unisono.study.cells import Cell
from unisono.study.inputs import inputs_of
from unisono.study.records import Records


def test_other_code_is_another_study(tmp_path):
    code = tmp_path / "own.py"
    code.write_text("K = 0")
    recipe = Recipe.from_options(model=f"{code}:net")
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
    recipe = Recipe.from_options(**{option: f"{tmp_path}/own.py:make"})
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
    cells = [Cell({}, Recipe.from_options(data=f"{code}:data"))]
    plan, again = (StudyPlan("compare", cells, StudyOptions()) for _ in range(2))
    path = plan.path
    code.write_text("K = 1")
    assert plan.path == path != again.path


@pytest.fixture
def folder(tmp_path) -> Path:
    """Files that data may be in."""
    (tmp_path / "data/sub").mkdir(parents=True)
    (tmp_path / "a:b").mkdir()
    for name in ("data/x.npy", "data/sub/y.npy", "data/corpus.txt", "data/.hidden", "data/sub/.hidden", "a:b/x.npy"):
        (tmp_path / name).write_bytes(b"1")
    return tmp_path


def named(folder: Path, **values: str) -> list[str]:
    """The files that belong to such a recipe."""
    return [str(Path(name).relative_to(folder)) for name in inputs_of([Recipe.from_options(**values)])["files"]]


@pytest.mark.parametrize(
    ("given", "files"),
    [
        ("data", ["data/corpus.txt", "data/sub/y.npy", "data/x.npy"]),
        ("data/x.npy", ["data/x.npy"]),
        ("data/sub", ["data/sub/y.npy"]),
        ("data/corpus.txt:context=8", ["data/corpus.txt"]),
        ("data/corpus.txt:context=8:tokens=b", ["data/corpus.txt"]),
        ("a:b", ["a:b/x.npy"]),
        ("a:b/x.npy:context=8", ["a:b/x.npy"]),
        ("nothing", []),
    ],
)
def test_the_files_that_a_recipe_names(folder, given, files):
    assert named(folder, data=f"{folder}/{given}") == files


@pytest.mark.parametrize("option", ["model", "data", "data_dir", "order"])
def test_every_option_that_names_files_counts(folder, option):
    assert named(folder, **{option: f"{folder}/data/x.npy"}) == ["data/x.npy"]


def test_what_exists_as_it_is_given_is_not_read_as_a_name_with_options(folder):
    (folder / "a").write_bytes(b"1")
    assert named(folder, data=f"{folder}/a:b") == ["a:b/x.npy"]


def test_the_home_directory_may_be_a_tilde(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder))
    assert named(folder, data="~/data/x.npy") == ["data/x.npy"]


@pytest.mark.parametrize(("size", "time_ns"), [(1, 2), (2, 1)])
def test_data_that_changed_in_size_or_time_are_other_data(folder, size, time_ns):
    file, recipe = folder / "data/x.npy", Recipe.from_options(data=f"{folder}/data")
    os.utime(file, ns=(1, 1))
    before = inputs_of([recipe])
    assert inputs_of([recipe]) == before
    file.write_bytes(b"2" * size)
    os.utime(file, ns=(1, time_ns))
    assert inputs_of([recipe]) != before


def test_the_versions_are_those_of_the_packages():
    made = inputs_of([Recipe()])
    assert made["files"] == {}
    assert made["made_with"]["unisono"] == unisono.__version__
    assert made["made_with"]["numpy"] == np.__version__


@pytest.mark.parametrize("package", ["numpy", "torch"])
def test_other_versions_are_another_study(monkeypatch, package):
    before = inputs_of([Recipe()])
    monkeypatch.setattr(inputs, "version", lambda name: "0.0.0" if name == package else version(name))
    assert inputs_of([Recipe()])["made_with"] == before["made_with"] | {package: "0.0.0"}


def test_a_package_that_is_not_there_has_no_version(monkeypatch):
    def nothing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(inputs, "version", nothing)
    assert inputs_of([Recipe()])["made_with"]["torch"] is None
