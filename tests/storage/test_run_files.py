"""Run directories of strangers: whatever stands in the place of a file is refused, and nothing outside is changed."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from support.cli.forked_command import forked
from support.report.run_records import rank, record
from support.training.snapshot_cases import arrays_at, facts_at, put
from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.report.run.loss_plot import plot_loss
from unisono.report.run.tensorboard import EventFile
from unisono.runs.energy_monitor import EnergyMonitor
from unisono.storage.fallback_writer import NotWritten
from unisono.storage.run_files import (
    FILES,
    FOLDERS,
    LIVE_PAGE,
    LOCK,
    TABLES,
    check_run_directory,
    epoch_of,
    headers,
    lines,
)
from unisono.storage.rundir import RunDirectory
from unisono.storage.snapshots.writer import prune, write
from unisono.storage.weights import Weights, save

pytest.importorskip("tensorboardX.crc32c")
pytestmark = pytest.mark.timeout(60)
RECIPE = Recipe.from_options(epochs=3)
KINDS = ["link", "dangling link", "link to a directory", "pipe", "directory", "file", "hard link"]
OLD_DRAFTS = [f"{name}.part" for name in ("recipe.toml", "summary.json", "metrics.jsonl", ".weights.safetensors")]
INNER = [f"snapshots/{LOCK}", "log/rank-0.stack"]
ABSENT = {*OLD_DRAFTS, LIVE_PAGE}
"""Not there after a run."""
NAMES = [*sorted(FILES | FOLDERS), *OLD_DRAFTS, *INNER]
RECORD = replace(record([rank(wait_s=0.25)] * 2, epoch=12), pushes=[[1, 2], [3, 4]])


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A run that has left all it can; pushes, of asynchronous runs, and a stack are made up."""
    run = tmp_path_factory.mktemp("trained") / "run"
    words = ["--epochs", "2", "--ranks", "1", "--snapshot-every", "1epochs", "--tensorboard", "--out", str(run)]
    command = [sys.executable, "-m", "unisono", "train", *words]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert forked("report", str(run)).returncode == 0
    (run / "pushes.csv").touch()
    (run / "log").mkdir()
    (run / "log" / "rank-0.stack").touch()
    return run


@pytest.fixture
def run(trained, tmp_path) -> Path:
    """A copy, without what is in the snapshots."""
    return shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("0*"))


@pytest.fixture
def outside(tmp_path) -> Path:
    """A directory beside the run: a file, and a directory with snapshots."""
    place = tmp_path / "outside"
    (place / "folder").mkdir(parents=True)
    (place / "file").write_text("not yours\n")
    for position in range(3):
        put(place / "folder", position, keep=5)
    return place


def contents(place: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def plant(kind: str, path: Path, outside: Path) -> None:
    remove(path)
    if kind == "link":
        path.symlink_to(outside / "file")
    elif kind == "dangling link":
        path.symlink_to(outside / "made by us")
    elif kind == "link to a directory":
        path.symlink_to(outside / "folder")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "file":
        path.touch()
    else:
        os.link(outside / "file", path)


def is_fine(kind: str, name: str) -> bool:
    """Whether a run may find that there. A file with a second name is made anew."""
    if name in FOLDERS:
        return kind == "directory"
    return kind in ("file", "hard link") or (kind == "directory" and name in OLD_DRAFTS)


def test_every_file_that_a_run_leaves_has_a_place_in_the_list(trained):
    assert set(os.listdir(trained)) == (FILES | FOLDERS) - {LIVE_PAGE}
    check_run_directory(trained)
    check_run_directory(trained / "no such run")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_in_the_place_of_a_file_is_refused_before_a_run_goes_on(kind, run, outside):
    before, kept = contents(outside), run.with_name("kept")
    for name in [name for name in NAMES if not is_fine(kind, name)]:
        if name not in ABSENT:
            (run / name).rename(kept)
        plant(kind, run / name, outside)
        with pytest.raises(UserError, match=r"\nHINT: nothing was changed; remove it") as refused:
            RunDirectory.reopen(run, 2, RECIPE)
        assert str(refused.value).startswith(str(run / name))
        assert contents(outside) == before, name
        remove(run / name)
        if name not in ABSENT:
            kept.rename(run / name)
    for name in [name for name in NAMES if is_fine(kind, name)]:
        plant(kind, run / name, outside)
    RunDirectory.reopen(run, 2, RECIPE).release()
    assert contents(outside) == before


def test_a_draft_of_a_killed_writer_goes_when_a_run_goes_on_or_ends(run):
    draft = run / ".weights.safetensors.0123456789abcdef.part"
    draft.touch()
    with RunDirectory.reopen(run, 2, RECIPE) as directory:
        assert not draft.exists()
        draft.touch()
        directory.finish({})
        assert not draft.exists()


def add_epoch(directory: RunDirectory) -> None:
    directory.add(replace(record([rank()], epoch=3), pushes=[[0] * 8]), ["W"])


def save_weights(directory: RunDirectory) -> None:
    with pytest.raises(NotWritten, match=r"weights\.safetensors cannot be written: is "):
        save(Weights({"W": np.ones(13, np.float32)}, {}), directory.weights)


def write_events(directory: RunDirectory) -> None:
    events = EventFile()
    with pytest.raises(OSError, match=r"link|directory"):
        events.add(record([rank()]), directory.path / "tensorboard")


def write_snapshot(directory: RunDirectory) -> None:
    folder = directory.path / "snapshots"
    with pytest.raises(NotWritten, match=r"snapshots.*: (is|has) "):
        write(folder, 13, arrays_at(13), facts_at(13), within=directory.path)
    assert not prune(folder, within=directory.path)


def measure(directory: RunDirectory) -> None:
    EnergyMonitor(directory.path, ["cpu"], 8.0).facts(13)


LATER = {
    "metrics.jsonl": add_epoch,
    "pushes.csv": add_epoch,
    "summary.json": lambda directory: directory.finish({}),
    "loss.png": lambda directory: directory.writer.keep("loss.png", partial(plot_loss, directory.path)),
    "weights.safetensors": save_weights,
    "energy.json": measure,
    "utilisation.csv": measure,
    "events.jsonl": lambda directory: directory.add_event({"kind": "death"}),
    "tensorboard": write_events,
    "snapshots": write_snapshot,
    f"snapshots/{LOCK}": write_snapshot,
}
"""What is written while a run goes on, and by what."""


@pytest.mark.parametrize("name", LATER)
def test_what_is_put_there_while_a_run_goes_on_costs_that_file_alone(name, run, outside):
    before = contents(outside)
    with RunDirectory.reopen(run, 2, RECIPE) as directory:
        for kind in KINDS:
            if not is_fine(kind, name):
                plant(kind, run / name, outside)
                LATER[name](directory)
                assert contents(outside) == before, kind
                if name in (*TABLES, "summary.json", "loss.png"):
                    assert name in directory.writer.trouble
                    assert "\nHINT: remove it" in directory.writer.trouble


@pytest.mark.parametrize(
    ("kind", "name"),
    [("link", "recipe.toml.part"), ("link to a directory", "snapshots"), ("pipe", "recipe.toml"), ("link", LOCK)],
)
def test_train_refuses_to_resume_such_a_run(kind, name, trained, outside):
    run = shutil.copytree(trained, outside.with_name("whole"))
    before = contents(outside)
    plant(kind, run / name, outside)
    ended = forked("train", "--resume", str(run), "--epochs", "3", "--allow-change", "epochs")
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.startswith(f"unisono: {run / name} is ")
    assert "HINT" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert contents(outside) == before


@pytest.mark.parametrize("kind", KINDS[:5])
def test_report_and_export_write_to_nothing_but_files(kind, run, outside):
    before = contents(outside)
    for name in ("report.html", "w.npz"):
        plant(kind, run / name, outside)
        words = ["report"] if name == "report.html" else ["weights", "--force", "--export", str(run / name)]
        ended = forked(*words, str(run))
        assert ended.returncode == 2, ended.stderr
        assert name in ended.stderr
        assert "HINT" in ended.stderr
        assert "Traceback" not in ended.stderr
    assert contents(outside) == before


def test_a_file_of_a_run_is_not_the_run(run):
    with pytest.raises(
        UserError, match=rf"is a file, not the directory of a run\nHINT: give the run directory: {run}$"
    ):
        check_run_directory(run / "recipe.toml")


def test_every_line_tells_its_epoch_and_headers_tell_none():
    added = lines(RECORD, ["W"], "mark")
    assert set(added) == set(TABLES)
    for text in added.values():
        assert {epoch_of(line) for line in text.splitlines()} == {12}
    assert [epoch_of(text) for text in headers(RECORD, ["W"]).values()] == [None] * 3


def test_a_number_that_is_no_epoch_is_none():
    assert [epoch_of(f'{{"epoch": {digits}') for digits in ("9" * 18, "9" * 19, "9" * 5000)] == [10**18 - 1, None, None]


def test_pushes_are_of_asynchronous_runs_alone():
    plain = replace(RECORD, pushes=[])
    assert set(lines(plain, ["W"], "mark")) == set(TABLES) - {"pushes.csv"}


def test_columns_of_one_strategy_come_after_those_of_all():
    more = replace(RECORD, ranks=[rank(wait_s=0.25, pushed=3, exchange_s=1.0)] * 2)
    header = headers(more, ["W"])["ranks.csv"].strip().split(",")
    assert header[8:] == ["update_s", "last_steps", "pushed", "contribution:W", "norm_share:W", "gradient_mean:W"]
    assert (
        lines(more, ["W"], "mark")["ranks.csv"].splitlines()[0] == "12,0,a,10,1.0,0.75,0.25,0.25,0.5,0,3,0.5,0.5,-1.0"
    )
