"""Manifests with a right seal and wrong facts: each is refused with a message that names the fact, or is harmless."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from support.training.forged_facts import mutated, reseal
from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.runs.lifecycle import run_recipe
from unisono.runs.supervised_training import RunPlaces, SupervisedRun
from unisono.storage.resume import as_saved, find_snapshot, recipe_of
from unisono.storage.snapshots import manifest as manifests
from unisono.storage.snapshots.snapshot import listed
from unisono.training.fingerprint import differences, fingerprint
from unisono.training.job import prepare

RECIPE = Recipe.from_options(data="synthetic:rows=48,features=13,classes=3", batch_size=24, epochs=2, ranks=1, shards=1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    run_recipe(RECIPE.with_options(out=str(path), snapshot_every="1epochs"))
    return path


@pytest.fixture
def run(trained, tmp_path) -> Path:
    """One that did not come to its end, without a recipe of its own."""
    shutil.copytree(trained / "snapshots", tmp_path / "run" / "snapshots")
    return tmp_path / "run"


def resume(run: Path) -> None:
    """All that a command does with a snapshot before its ranks start."""
    recipe = recipe_of(str(run), {"epochs": 3, "allow_change": "epochs"})
    snapshot = find_snapshot(recipe)
    assert snapshot is not None
    job = prepare(as_saved(recipe, snapshot))
    SupervisedRun(job, RunPlaces()).resume(snapshot)
    assert isinstance(snapshot.facts["epoch"] - (snapshot.facts["step"] <= job.plan.steps_per_epoch), int)
    assert all(line.isprintable() for line in differences(snapshot.facts["fingerprint"], fingerprint()))


def test_facts_of_a_run(run):
    resume(run)
    path = listed(run / "snapshots")[0]
    manifest = manifests.read(path)
    used = {name: fact for name, fact in manifest.facts.items() if name != "steps_done"}
    refused = {}
    for name, facts in mutated(used, 2):
        if name.startswith("recipe.") and name.split()[0] not in ("recipe.shards", "recipe.lr", "recipe.data"):
            continue  # three options stand for all
        reseal(path, manifest, facts)
        try:
            resume(run)
        except UserError as error:
            refused[name] = str(error)
    assert not [name for name, told in refused.items() if "\x1b" in told or len(told) > 2000]
    needed = ("epoch", "step", "recipe", "data", "fingerprint")
    assert {f"{fact} {wrong}" for fact in needed for wrong in ("none", "left out")} <= refused.keys()
    odd = {
        "epoch huge",
        "step negative",
        "recipe nested",
        "data long",
        "directory list",
        "epoch true",
        "recipe.lr list",
    }
    assert odd <= refused.keys()


@pytest.mark.parametrize("position", [0, 1, 7, 10**11])
def test_a_position_that_is_not_that_of_the_epoch(run, position):
    path = listed(run / "snapshots")[0]
    manifest = manifests.read(path)
    forged = path.rename(path.with_name(f"000009-{position:012}"))
    (forged / manifests.FILE).write_bytes(manifests.sealed(replace(manifest, position=position)))
    with pytest.raises(UserError, match=f"position {position} is not that of epoch 2, step 3, of 2 steps"):
        resume(run)


def test_arrays_of_another_type_or_shape(run):
    path = listed(run / "snapshots")[0]
    manifest = manifests.read(path)
    swapped = dict(manifest.files) | {"buffers": manifest.files["params"], "params": manifest.files["buffers"]}
    (path / "buffers.safetensors").rename(path / "kept")
    (path / "params.safetensors").rename(path / "buffers.safetensors")
    (path / "kept").rename(path / "params.safetensors")
    (path / manifests.FILE).write_bytes(manifests.sealed(replace(manifest, files=swapped)))
    with pytest.raises(UserError, match=r"does not fit this recipe: params: \{'all': 'float32 "):
        resume(run)


@pytest.mark.parametrize("kind", ["pipe", "link", "directory"])
def test_a_summary_that_is_no_file_neither_waits_nor_is_followed(run, kind):
    path = run / "summary.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(UserError, match=r"summary\.json is .*\nHINT: nothing was changed; remove it"):
        resume(run)
