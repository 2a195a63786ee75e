"""Studies on a small disk that is really full."""

import json
from pathlib import Path

import pytest

from support.cli.forked_command import forked
from support.report.profile_records import record as profiled
from unisono.cli.main import app
from unisono.errors import UserError
from unisono.measure.profile import study as profiling
from unisono.measure.tune import search
from unisono.recipe import Recipe
from unisono.study.cell_process import run_cell
from unisono.study.cells import Cell, cells_of, over
from unisono.study.study import RunOptions, carry_out, run_order
from unisono.study.study_directory import Records

CELLS = cells_of(Recipe(), [over("ranks=1,2")])
ROOM = "make room on that disk; what was finished is kept, and the same command goes on"


def fill(place: Path) -> Path:
    ballast = place / "ballast"
    with pytest.raises(OSError, match="No space left"):
        ballast.write_bytes(bytes(1 << 20))
    return ballast


def add_many(records: Records, record: dict) -> None:
    for _ in range(20):
        records.add(record)


def test_a_record_for_which_there_is_no_room_leaves_the_others_whole(small_disk):
    disk = small_disk(64)
    record = {"digest": "1", "text": "x" * 700, "cell": "a", "labels": {}, "status": "failed", "reason": "", "run": "r"}
    record |= {"elapsed_s": 1.5, "exit_code": 1, "repeat": 0, "summary": {}}
    with Records.open(disk / "s", "scale", {}) as records:
        records.add(record)
        ballast = fill(disk)
        with pytest.raises(UserError, match=rf"s/cells.jsonl cannot be written: No space left on device\nHINT: {ROOM}"):
            add_many(records, record)
        kept = len(records.all)
        lines = (disk / "s/cells.jsonl").read_text().splitlines(keepends=True)
        assert [json.loads(line) for line in lines] == [record] * kept
        assert lines[-1].endswith("\n")
        ballast.unlink()
        records.add(record)
    with Records.open(disk / "s", "scale", {}) as records:
        assert len(records.all) == kept + 1


def test_a_study_that_cannot_even_be_named_is_begun_when_there_is_room(small_disk):
    disk = small_disk(64)
    ballast = fill(disk)
    with pytest.raises(UserError, match=r"s/study.json cannot be written: No space left on device\nHINT: make room"):
        Records.open(disk / "s", "scale", {"cells": "x" * 5000})
    ballast.unlink()
    Records.open(disk / "s", "scale", {"cells": "x" * 5000}).close()


def test_a_recipe_for_which_there_is_no_room(small_disk):
    disk = small_disk(64)
    fill(disk)
    with pytest.raises(UserError, match=r"a.toml cannot be written: No space left on device"):
        run_cell(CELLS[0], disk / "cells/a.toml", disk / "run", 10.0)


def test_a_full_disk_is_no_fault_of_the_cell(tmp_path, monkeypatch):
    """The second run says that its directory could not be written, with the exit code of a mistake."""
    done: list[str] = []

    def run(cell, recipe, path, timeout_s, on_line):
        done.append(cell.name)
        if len(done) == 2:
            said = f"unisono: {path}/weights.safetensors cannot be written: No space left on device"
            return {"status": "failed", "reason": "x", "error": f"{said}\nHINT: x", "exit_code": 2, "summary": {}}
        summary = {"train_s": 1.5, "wall_s": 1.75, "samples_per_s": 13.0, "weights_sha256": "7"}
        return {"status": "finished", "reason": "", "error": "", "exit_code": 0, "elapsed_s": 2.0, "summary": summary}

    monkeypatch.setattr("unisono.study.study.run_cell", run)

    def conduct() -> list[dict]:
        with Records.open(tmp_path / "s", "scale", {}) as records:
            return list(carry_out(records, run_order(CELLS, 1), RunOptions()))

    with pytest.raises(UserError, match=rf"weights.safetensors cannot be written: No space.*\nHINT: {ROOM}"):
        conduct()
    assert [record["cell"] for record in conduct()] == ["ranks=1", "ranks=2"]
    assert done == ["ranks=1", "ranks=2", "ranks=2"]


def test_a_full_disk_of_somebody_else_is_a_reason(tmp_path, monkeypatch):
    said = {"reason": "/cache: No space left on device", "error": "unisono: /cache: No space left on device"}
    failed = {"status": "failed", "exit_code": 2, "elapsed_s": 1.0, "summary": {}} | said
    monkeypatch.setattr("unisono.study.study.run_cell", lambda *given: failed)
    with Records.open(tmp_path / "s", "scale", {}) as records:
        list(carry_out(records, run_order([Cell({}, Recipe())], 1), RunOptions()))
        assert records.all[0]["reason"] == said["reason"]


IMPATIENT = """
from unisono.storage import fallback_writer
fallback_writer.PATIENCE_S = fallback_writer.SAFE_PATIENCE_S = 0.0
"""
"""As sitecustomize.py: the run that the study starts does not wait until there is room."""


def test_the_command_ends_with_one_message(small_disk, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(IMPATIENT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    ended = forked("scale", "--grid", "1x1", "--epochs", "1", "--out", "s", cwd=small_disk(48))
    assert ended.returncode == 2, ended.stderr
    assert "s/runs/" in ended.stderr
    assert "No space left on device" in ended.stderr
    assert ended.stderr.endswith(f"\nHINT: {ROOM}\n")
    assert "Traceback" not in ended.stderr


def test_tables_for_which_there_is_no_room_are_shown(small_disk, monkeypatch, capsys):
    disk = small_disk(64)

    def run_trial(cell, seconds, limit_bytes):
        found = {"shards": 8, "global_batch": 64, "memory_bytes": 1 << 20, "energy_source": "none"}
        found |= {"joules_per_sample": None, "samples_per_s": 100.0}
        return {"status": "finished", "reason": "", "exit_code": 0, **found}

    monkeypatch.setattr(search, "run_trial", run_trial)
    monkeypatch.setattr("unisono.measure.tune.search.Records.add", lambda self, record: self.all.append(dict(record)))
    (disk / "o").mkdir()
    fill(disk)
    (disk / "ballast").write_bytes(bytes(52 << 10))  # room for study.json and some of the tables
    with pytest.raises(UserError, match=rf"No space left on device\nHINT: {ROOM}"):
        app(["tune", "--ranks", "1", "--threads", "1", "--out", str(disk / "o")], exit_on_error=False)
    assert "settings that were tried" in capsys.readouterr().out


def test_a_profile_for_which_there_is_no_room_is_shown(small_disk, monkeypatch, capsys):
    disk = small_disk(64)

    def measure(job, look):
        fill(disk)  # meanwhile; one that is full before anything was measured is told at once
        return profiled()

    monkeypatch.setattr(profiling, "measure", measure)
    words = ["profile", "--batches", "1", "--ranks", "1", "--out", str(disk / "p")]
    with pytest.raises(UserError, match=r"cannot be written: No space left on device\nHINT: make room on that disk$"):
        app(words, exit_on_error=False)
    assert "phases of a step" in capsys.readouterr().out
