"""Whole runs of the user's own network: what is in its file when it is edited, and what it draws when it was not seen
to."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import unisono
from unisono.errors import RankFailed
from unisono.recipe import Recipe
from unisono.runs.launched_training import train_launched
from unisono.runs.supervised_training import RunPlaces, SupervisedRun
from unisono.strategies.arena.sync import SyncArena
from unisono.strategies.messages.base import SnapshotMessageStrategy
from unisono.training.job import Job, prepare

NET = """
import numpy as np, torch
CALLS = []  # a global: the trial does not see it, for the first outputs do not depend on it
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
    def forward(self, x):
        return self.layer(self.scaled(x))
    def scaled(self, x):
        return FACTOR
def make(): return Net()
"""
LATE = """x * (1 + np.random.rand() if self.training and len(CALLS) > 9 else 1)
    def __call__(self, x):
        CALLS.append(1)
        return super().__call__(x)"""


@pytest.fixture
def data(tmp_path: Path) -> str:
    """Of which none are for a test, unless the recipe takes some for validation."""
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "few.npz", train_x=rng.random((128, 4), np.float32), train_y=rng.integers(0, 3, 128))
    return str(tmp_path / "few.npz")


def job_of(folder: Path, factor: str, **options) -> Job:
    file = folder / "mine.py"
    file.write_text(NET.replace("FACTOR", factor))
    return prepare(
        Recipe.from_options(**{"model": f"{file}:make", "epochs": 6, "batch_size": 32, "ranks": 2} | options)
    )


def sha256(job: Job) -> str:
    return SupervisedRun(job, RunPlaces()).train(lambda rank, record: None).results[0]["weights_sha256"]


@pytest.mark.parametrize("strategy", ["sync", "local"])
def test_a_file_that_is_edited_meanwhile_is_run_as_it_was(tmp_path, data, strategy):
    """Replacements of ranks are built later than the others."""
    job = job_of(tmp_path, "x * 1", data=data, strategy=strategy)
    before, other = sha256(job), job_of(tmp_path, "x * 3", data=data, strategy=strategy)
    assert sha256(job) == before != sha256(other)
    (tmp_path / "mine.py").unlink()
    assert sha256(job) == before


def test_the_hash_of_a_network_is_that_of_what_is_run(tmp_path, data):
    job = job_of(tmp_path, "x * 1", data=data)
    (tmp_path / "mine.py").write_text("other")
    assert replace(job).code_sha256 == hashlib.sha256(job.own_source).hexdigest() == job.code_sha256


TRAININGS = {
    "arena": lambda job, places: SupervisedRun(job, places).train(lambda rank, record: None),
    "ring": lambda job, places: unisono.run(lambda world: train_launched(world, job, places), job.recipe.ranks.count),
}


@pytest.mark.parametrize("allreduce", TRAININGS)
@pytest.mark.parametrize("how", ["kept", "left"])
def test_draws_that_begin_late_are_in_no_snapshot(tmp_path, data, allreduce, how, monkeypatch):
    """Else whoever resumes from it goes on with weights that cannot be had again. They begin in the third step."""
    every = {"snapshot_every": "3steps"} if how == "kept" else {}
    job = job_of(tmp_path, LATE, data=data, allreduce=allreduce, epochs=1, batch_size=16, **every)
    if how == "left":
        for kind in (SyncArena, SnapshotMessageStrategy):
            monkeypatch.setattr(kind, "halts_after", lambda strategy, position: position == 4)
    with pytest.raises(RankFailed, match="begun to draw from the generator of NumPy"):
        TRAININGS[allreduce](job, RunPlaces(snapshots=tmp_path / "snapshots"))
    assert not list(tmp_path.glob("snapshots/*/manifest.json"))


@pytest.mark.parametrize("strategy", ["sync", "local", "async"])
@pytest.mark.parametrize("validation", [0.0, 0.25])
def test_draws_that_begin_late_end_the_run(tmp_path, data, strategy, validation):
    job = job_of(tmp_path, LATE, data=data, strategy=strategy, validation=validation)
    with pytest.raises(RankFailed, match="begun to draw from the generator of NumPy"):
        sha256(job)
