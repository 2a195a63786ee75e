"""Files named by relative paths: which options have them, and from where they are taken."""

import os
from pathlib import Path

import pytest

from unisono.recipe import Recipe
from unisono.storage.path_resolution import CARRIED, FILES, here, inside, resolve_paths


@pytest.mark.parametrize(
    ("name", "value", "placed"),
    [
        ("model", "mlp:64", "mlp:64"),
        ("model", "mine.py:net", "/run/mine.py:net"),
        ("data", "digits", "digits"),
        ("data", "synthetic:classes=4,rows=8", "synthetic:classes=4,rows=8"),
        ("data", "rows.npz", "/run/rows.npz"),
        ("data", "folder", "/run/folder"),
        ("data", "deep/own.py:make", "/run/deep/own.py:make"),
        ("data", "all.txt:context=8,test=0.1", "/run/all.txt:context=8,test=0.1"),
        ("data", "/abs/rows.npz", "/abs/rows.npz"),
        ("data", "~/rows.npz", "~/rows.npz"),
        ("data_dir", "", ""),
        ("data_dir", "../mnist", "/run/../mnist"),
        ("order", "free", "free"),
        ("order", "pushes.csv", "/run/pushes.csv"),
    ],
)
def test_the_file_in_an_option(name, value, placed):
    assert inside(name, value, "/run") == placed
    assert inside(name, value, "") == value


def test_what_is_here_is_taken_from_here(tmp_path, monkeypatch):
    there, now = tmp_path / "there", tmp_path / "now"
    for folder in (there, now):
        folder.mkdir()
        (folder / "both.npz").touch()
    (there / "mine.py").touch()
    monkeypatch.chdir(now)
    recipe = Recipe.from_options(model="mine.py:net", data="both.npz", data_dir="nowhere")
    found = resolve_paths(recipe, str(there))
    assert (found.model.name, found.data.name, found.data.directory) == (f"{there}/mine.py:net", "both.npz", "nowhere")
    assert resolve_paths(recipe, "") == recipe
    assert resolve_paths(recipe, here()) == recipe


def test_every_option_that_may_name_a_file_is_one_of_a_recipe():
    assert FILES.keys() <= Recipe().options().keys()


def test_a_working_directory_that_was_removed(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    assert here() == str(gone)
    os.rmdir(gone)
    assert here() == ""
    assert inside("data", "rows.npz", here()) == "rows.npz"
    assert not Path("rows.npz").exists()


def test_a_run_may_carry_its_code_and_data_but_no_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    for name in ("net.py", "rows.npz", "pushes.csv"):
        (tmp_path / "run" / name).touch()
    recipe = Recipe.from_options(model="net.py:make", data="rows.npz", order="pushes.csv")
    found = resolve_paths(recipe, str(tmp_path / "run"), CARRIED)
    assert (found.model.name, found.data.name) == (f"{tmp_path}/run/net.py:make", f"{tmp_path}/run/rows.npz")
    assert found.strategy.order == "pushes.csv"
