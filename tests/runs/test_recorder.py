"""Recorder: what is told and written, whatever happens to the run or to the disk. Records are made up."""

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from support.training.snapshot_cases import is_locked
from unisono.errors import RankFailed, UnisonoError, UserError
from unisono.messages.events import Event, SnapshotFailed, SnapshotWritten
from unisono.messages.rank_reports import EpochRecord, Progress, WeightsTrouble
from unisono.recipe import Recipe
from unisono.runs.early_end import user_error_of
from unisono.runs.recorder import Recorder
from unisono.storage import rundir
from unisono.training.job import Job, prepare
from unisono.user_code.tracebacks import ending

FOUND = {
    "train_loss": 0.25, "train_accuracy": 0.0, "test_loss": 0.5, "test_accuracy": 0.0, "epochs": 2, "steps": 46,
    "samples": 2884, "first_sync_s": 0.001, "compute_s": 9.0, "data_s": 9.0, "wait_s": 9.0,
    "update_s": 9.0, "stopped_early": "", "peak_memory_bytes": 1, "weights_sha256": "ab" * 32, "shard_price": 1.5,
}  # fmt: skip
TRACEBACK = 'Traceback (most recent call last):\n  File "mine.py", line 7, in forward\n    1 / 0\nValueError: no\n'


@pytest.fixture
def job(tmp_path) -> Job:
    return prepare(Recipe.from_options(epochs=2, out=str(tmp_path / "run")))


def record(job: Job, epoch: int) -> EpochRecord:
    times = {"data_s": 0.1, "compute_s": 1.0, "wait_s": 0.2, "update_s": 0.1, "last_steps": 3, "samples": 721}
    metrics = {"epoch": epoch, "epoch_s": 1.0, "total_s": 1.5, "samples_per_s": 1442.0, "lr": 0.01}
    return EpochRecord(
        metrics=metrics | {"train_loss": 1.0, "train_accuracy": 0.0},
        steps=23,
        ranks=[times | {"host": host} for host in ("a", "b")],
        shares=[[[0.5, 0.5, 0.0]] * len(job.model().layout.names)] * 2,
        meetings=23,
    )


def summary_of(job: Job) -> dict:
    return json.loads((Path(job.recipe.output.directory) / "summary.json").read_text())


def test_a_run_from_opening_to_verdict(job, capsys):
    with Recorder(job, "shm", ["a", "b"]) as recorder:
        recorder.add(Progress(epoch=1, step=1, steps=23, samples_per_s=1.0))
        for epoch in (1, 2):
            recorder.add(record(job, epoch))
        summary = recorder.finish(FOUND)
    told = capsys.readouterr().out.splitlines()
    assert "2 ranks x 1 thread on 2 hosts (a, b)" in told[0]
    assert [line[:9] for line in told[2:4]] == ["epoch 1/2", "epoch 2/2"]
    assert "train loss 1.0000 accuracy 0.0000" in told[2]
    assert "test accuracy 0.00 %" in told[4]  # 0 is an accuracy
    assert any("8 shards cost 33 % of the computing time" in line for line in told)
    # All ranks, not those of whoever returned `found`; and they add up to about the time of training.
    assert [summary[f"{name}_s"] for name in ("compute", "data", "wait", "update")] == pytest.approx(
        [2.0, 0.2, 0.4, 0.2]
    )
    assert (summary["sync_s"], summary["nodes"], summary["status"]) == (pytest.approx(0.6), 2, "finished")
    assert (summary["train_s"], summary["samples_per_s"]) == (2.0, 1442.0)
    assert summary_of(job) == summary
    assert (recorder.path / "loss.png").exists()


def test_a_regression_has_no_accuracy(tmp_path, capsys):
    data = "synthetic:regression,rows=100,features=3"
    job = prepare(Recipe.from_options(model="linear", data=data, epochs=1, out=str(tmp_path / "run")))
    with Recorder(job, "shm") as recorder:
        recorder.add(record(job, 1))
        summary = recorder.finish(FOUND)
    assert "accuracy" not in capsys.readouterr().out
    assert (summary["test_accuracy"], summary["train_accuracy"]) == (None, None)
    assert json.loads((recorder.path / "metrics.jsonl").read_text())["train_accuracy"] is None


def test_log_ranks_come_before_their_epoch(tmp_path, capsys):
    job = prepare(Recipe.from_options(epochs=2, log_ranks=True, out=str(tmp_path / "run")))
    with Recorder(job, "shm") as recorder:
        recorder.add(record(job, 1))
        recorder.finish(FOUND)
    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("epoch 1/2"))
    assert [line.split(":")[0] for line in lines[at - 2 : at]] == ["Epoch 1, rank 0", "Epoch 1, rank 1"]


def refuse(monkeypatch) -> None:
    def full(fd: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)


def test_a_full_disk_is_said_once_and_the_training_goes_on(job, capsys, monkeypatch):
    with Recorder(job, "shm") as recorder:
        with monkeypatch.context() as patched:
            refuse(patched)
            for epoch in (1, 2):
                recorder.add(record(job, epoch))
            told = capsys.readouterr()
            assert told.err.count("No space left on device") == 1
            assert told.err.count("HINT: make room on that disk") == 1
            assert str(recorder.path) in told.err
            assert "epoch 2/2" in told.out
        recorder.add(record(job, 3))
        assert "nothing is missing" in capsys.readouterr().err
        recorder.finish(FOUND)
    assert len((recorder.path / "metrics.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        ("full", r"missing: metrics\.jsonl from epoch 1 on, ranks\.csv from epoch 1 on.*loss\.png"),
        ("removed", r"summary\.json, loss\.png\nHINT"),
    ],
)
def test_a_disk_that_stays_full_or_a_directory_that_is_gone_gives_the_verdict_and_an_error(
    job, capsys, monkeypatch, trouble, told
):
    if trouble == "full":
        refuse(monkeypatch)
    with Recorder(job, "shm") as recorder:
        recorder.add(record(job, 1))
        if trouble == "removed":
            shutil.rmtree(recorder.path)
        with pytest.raises(UserError, match=told):
            recorder.finish(FOUND)
    assert "weights abab" in capsys.readouterr().out
    if trouble == "full":
        assert summary_of(job)["status"] == "finished"  # what fits is there


def test_weights_that_a_rank_cannot_write_are_said_once(job, capsys):
    with Recorder(job, "shm") as recorder:
        for _ in range(2):
            recorder.add(WeightsTrouble("weights.safetensors cannot be written: No space left on device"))
        recorder.add(record(job, 1))
        with pytest.raises(UserError, match="weights"):
            recorder.finish(FOUND)
    assert capsys.readouterr().err.count("weights.safetensors") == 1
    assert "trouble" not in summary_of(job)


def failing(job: Job, error: BaseException, epochs: int, *events: Event) -> None:
    def work() -> None:
        with Recorder(job, "shm") as recorder:
            for event in events:
                recorder.add_event(event)
            for epoch in range(1, epochs + 1):
                recorder.add(record(job, epoch))
            raise error

    with pytest.raises(type(error)):
        work()


@pytest.mark.parametrize("error", [UserError("too little memory"), RankFailed(1, "too little memory", exit_code=2)])
def test_a_mistake_that_is_found_at_the_start_leaves_no_directory(job, error):
    failing(job, error, epochs=0)
    assert not Path(job.recipe.output.directory).exists()


@pytest.mark.parametrize("path", [None, "snapshots/1"])
def test_a_mistake_that_is_found_after_a_snapshot_leaves_it_with_its_recipe(job, path):
    event = SnapshotFailed(1, "the disk is full") if path is None else SnapshotWritten(1, path, "the disk is full")
    failing(job, UserError("too little memory"), 0, event)
    assert (Path(job.recipe.output.directory) / "recipe.toml").exists() == (path is not None)


@pytest.mark.parametrize(
    ("error", "epochs", "status", "told"),
    [
        (UserError("no room"), 1, "failed", "no room"),
        (UnisonoError("the loss became nan"), 0, "failed", "the loss became nan"),
        (RankFailed(1, "it died", exit_code=1), 0, "failed", "rank 1: it died"),
        (RankFailed(0, TRACEBACK, kind="ValueError", traceback=True), 1, "failed", f"rank 0: {TRACEBACK}"),
        (RankFailed(0, "the loss became nan", kind="UnisonoError"), 1, "failed", "the loss became nan"),
        (KeyboardInterrupt(), 1, "interrupted", "KeyboardInterrupt"),
    ],
)
def test_a_run_that_ends_early_says_how(job, error, epochs, status, told):
    failing(job, error, epochs)
    assert (summary_of(job)["status"], summary_of(job)["error"]) == (status, told)


@pytest.mark.parametrize(("hosts", "whose"), [(None, "rank 0: "), (["here"], "")])
def test_an_exception_beside_the_recorder_is_told_whole_and_a_rank_of_another_launcher_is_named(job, hosts, whose):
    with pytest.raises(KeyError), Recorder(job, "shm", hosts):
        {}["x"]
    assert summary_of(job)["error"].startswith(f"{whose}Traceback (most recent call last):\n")
    assert ending(summary_of(job)["error"]) == f"{whose}KeyError: 'x'"


@pytest.mark.parametrize(("engine", "told"), [("torch", True), ("numpy", False)])
def test_the_version_of_torch_is_told_of_runs_that_compute_with_it(engine, told, tmp_path):
    pytest.importorskip("torch")
    job = prepare(Recipe.from_options(engine=engine, out=str(tmp_path / "run")))
    with Recorder(job, "shm") as recorder:
        recorder.fail("it ended")
    assert ("torch" in summary_of(job)["machine"]) == told


def test_what_was_told_by_hand_is_not_told_again(job):
    recorder = Recorder(job, "shm")
    recorder.fail("first")
    recorder.__exit__(UnisonoError, UnisonoError("second"), None)
    assert summary_of(job)["error"] == "first"


@pytest.mark.parametrize("error", [UnisonoError("it failed"), KeyboardInterrupt()])
def test_nobody_else_gets_the_directory_before_its_summary_is_there(job, error, monkeypatch):
    finish, found = rundir.RunDirectory.finish, []

    def watched(directory: rundir.RunDirectory, summary: dict) -> None:
        finish(directory, summary)
        found.append(is_locked(directory.path / rundir.LOCK))

    monkeypatch.setattr(rundir.RunDirectory, "finish", watched)
    failing(job, error, epochs=1)
    assert found == [True]
    assert not is_locked(Path(job.recipe.output.directory) / rundir.LOCK)


def test_a_recorder_that_cannot_begin_keeps_nobody_away(job, monkeypatch):
    def fail(*given: object) -> str:
        raise UnicodeEncodeError("ascii", "x", 0, 1, "the terminal cannot show it")

    monkeypatch.setattr("unisono.runs.recorder.opening", fail)
    with pytest.raises(UnicodeEncodeError) as caught:
        Recorder(job, "shm")
    assert not is_locked(Path(job.recipe.output.directory) / rundir.LOCK), caught  # whose traceback holds the recorder


@pytest.mark.parametrize(("model", "more"), [("mlp:64", ""), ("mine.py:net", " --allow-change model")])
def test_an_exception_in_the_users_own_code_says_where_to_go_on(job, model, more):
    with Recorder(job, "shm") as recorder:
        recorder._job = replace(job, recipe=job.recipe.with_options(model=model))
        error = RankFailed(1, TRACEBACK, kind="ValueError", traceback=True)
        told = f"rank 1: {TRACEBACK.rstrip()}\nWhat was reached is in {recorder.path}"
        assert str(user_error_of(error, recorder.path, recorder.resume_command)) == told
        (recorder.path / "snapshots" / "000001-000000000003").mkdir(parents=True)
        found = user_error_of(error, recorder.path, recorder.resume_command)
        assert str(found).endswith(f"HINT: correct it, then go on with unisono train --resume {recorder.path}{more}")
        assert type(found) is RankFailed
