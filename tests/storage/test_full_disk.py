"""The run directory and the weights on a small disk that is really full, or became read-only."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from unisono.errors import UserError
from unisono.messages.reports import EpochRecord
from unisono.recipe import Recipe
from unisono.storage.rundir import RunDirectory
from unisono.storage.weights import Weights, load, save

RECIPE = Recipe.from_options(epochs=3)


def record(epoch: int) -> dict:
    rank = {
        "host": "a",
        "samples": 50,
        "data_s": 1.0,
        "compute_s": 2.0,
        "wait_s": 0.25,
        "update_s": 0.5,
        "last_steps": 1,
    }
    return EpochRecord({"epoch": epoch}, 4, [rank] * 2, [[[0.5, 0.5, -1.0]]] * 2, meetings=4)


def epochs_of(path: Path) -> list[int]:
    return [json.loads(line)["epoch"] for line in (path / "metrics.jsonl").read_text().splitlines()]


def fill(place: Path) -> Path:
    ballast = place / "ballast"
    with pytest.raises(OSError, match="No space left"):
        ballast.write_bytes(bytes(1 << 20))
    return ballast


def test_a_disk_that_is_really_full(small_disk):
    disk = small_disk(64)
    run = disk / "run"
    with RunDirectory.make(str(run), RECIPE) as directory:
        directory.add(record(1), ["W"])
        ballast = fill(disk)
        for epoch in range(2, 200):
            directory.add(record(epoch), ["W"])
        assert "No space left on device" in directory.journal.trouble
        for name in ("metrics.jsonl", "ranks.csv", "sync_time.csv", "contributions.csv"):
            assert (run / name).read_bytes().endswith(b"\n")
        directory.finish({"status": "finished", "machine": "x" * 8192})
        assert "summary.json" in directory.journal.missing
        assert not (run / "summary.json.part").exists()
        ballast.unlink()
        directory.add(record(200), ["W"])
    assert epochs_of(run) == list(range(1, 201))
    assert len((run / "ranks.csv").read_text().splitlines()) == 401


def test_a_disk_that_became_read_only(small_disk):
    disk = small_disk(64)
    with RunDirectory.make(str(disk / "run"), RECIPE) as directory:
        directory.release()  # with a file open for writing only a disk that fails becomes read-only
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        directory.add(record(1), ["W"])
        assert "the disk became read-only" in directory.journal.trouble
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        directory.add(record(2), ["W"])
    assert epochs_of(disk / "run") == [1, 2]


def test_a_full_disk_leaves_the_weights_that_were_there(small_disk):
    first, second = (Weights({"W": np.full(5000, value, np.float32)}, {}) for value in (1.0, 2.0))
    disk = small_disk(64)
    path = disk / "weights.safetensors"
    save(first, path)
    fill(disk)
    with pytest.raises(UserError, match="No space left on device"):
        save(second, path)
    assert load(path).sha256() == first.sha256()
    assert sorted(entry.name for entry in disk.iterdir()) == ["ballast", "weights.safetensors"]
