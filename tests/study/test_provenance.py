"""What a study was made of: another file, another version or another command is seen; options on which runs agree."""

import json
import os
import shlex
import sys
from importlib import metadata
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import pytest

import unisono
from unisono.cli.common.study_command import StudyPlan
from unisono.errors import UserError
from unisono.measure.options import StudyOptions
from unisono.recipe import Recipe
from unisono.study import provenance
from unisono.study.cells import Cell
from unisono.study.provenance import command_line, inputs_of, write_about
from unisono.study.study_directory import Records


@pytest.mark.parametrize("changed", ["own.py", "helper.py"])
@pytest.mark.parametrize("option", ["model", "data"])
def test_other_code_or_a_module_that_it_imports_is_another_study(tmp_path, option, changed):
    for name, text in {"own.py": "import helper", "helper.py": "K = 0", "other.py": "K = 0"}.items():
        (tmp_path / name).write_text(text)
    recipe = Recipe.from_options(**{option: f"{tmp_path}/own.py:make"})
    before = inputs_of([recipe])
    (tmp_path / "other.py").write_text("K = 1")
    os.utime(tmp_path / "own.py", (1, 1))
    assert inputs_of([recipe]) == before  # touched, and the same
    with Records.open(tmp_path / "s", "scale", before) as records:
        records.add({"digest": "1"})
    with open(tmp_path / changed, "a") as file:
        file.write("\nK = 1")
    told = rf"another study: studied is files .*{changed} .* there, files .*{changed} .* here"
    with pytest.raises(UserError, match=told):
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
    monkeypatch.setattr(provenance, "version", lambda name: "0.0.0" if name == package else version(name))
    assert inputs_of([Recipe()])["made_with"] == before["made_with"] | {package: "0.0.0"}


def test_a_package_that_is_not_there_has_no_version(monkeypatch):
    def nothing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(provenance, "version", nothing)
    assert inputs_of([Recipe()])["made_with"]["torch"] is None


def test_what_runs_agree_on_is_the_recipe_and_the_rest_is_varied(tmp_path, monkeypatch):
    words = ["scale", "--data", "it's here.npz", "--model", "mlp:64\nrm"]
    monkeypatch.setattr(sys, "argv", ["/x/__main__.py", *words])
    write_about(
        tmp_path, [Recipe.from_options(ranks=1, epochs=3, out="a"), Recipe.from_options(ranks=2, epochs=3, out="b")]
    )
    about = json.loads((tmp_path / "about.json").read_text())
    assert about["varied"] == ["ranks"]
    assert about["recipe"]["epochs"] == 3
    assert {"ranks", "out", "resume"}.isdisjoint(about["recipe"])
    assert about["machine"]["cores"] > 0
    assert shlex.split(about["command"]) == ["unisono", *words[:-1], "mlp:64 rm"]
    assert "\n" not in command_line()


def test_the_version_of_torch_is_told_where_a_run_computes_with_it(tmp_path):
    pytest.importorskip("torch")
    write_about(tmp_path, [Recipe(), Recipe.from_options(strategy="ddp")])
    about = json.loads((tmp_path / "about.json").read_text())
    assert about["machine"]["torch"] == metadata.version("torch")


def test_of_a_bench_there_is_no_recipe_and_of_jobs_elsewhere_no_machine(tmp_path):
    write_about(tmp_path, [], here=False)
    about = json.loads((tmp_path / "about.json").read_text())
    assert (about["recipe"], about["varied"], about["machine"]) == ({}, [], {})
