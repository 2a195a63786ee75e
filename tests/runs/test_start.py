"""What one finds out for all: the first of several machines, the first rank of another launcher's."""

import numpy as np

from unisono.recipe import Recipe
from unisono.runs.course import run_recipe
from unisono.runs.start import find_start
from unisono.storage.resume import recipe_of
from unisono.storage.snapshots.snapshot import Snapshot


def test_files_that_are_not_here_are_found_where_the_run_was_started(tmp_path, monkeypatch, capsys):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    x, y = np.arange(256, dtype=np.float32).reshape(64, 4) / 256, np.arange(64) % 2
    np.savez(tmp_path / "first" / "own.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    monkeypatch.chdir(tmp_path / "first")
    run = str(tmp_path / "run")
    run_recipe(
        Recipe.from_options(model="mlp:4", data="own.npz", epochs=1, batch_size=16, snapshot_every="1epoch", out=run)
    )
    monkeypatch.chdir(tmp_path / "second")
    snapshots: list[Snapshot] = []
    capsys.readouterr()
    found = find_start(recipe_of(run, {"resume": run, "epochs": 2, "allow_change": "epochs"}), 0, snapshots)
    there = str(tmp_path / "first" / "own.npz")
    assert found["changed"]["data"] == there
    assert (found["position"], found["anew"]) == (snapshots[0].position, False)
    assert capsys.readouterr().out == f"--data own.npz is not here: taken from {there}\n"
