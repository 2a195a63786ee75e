"""`unisono profile`, as a user runs it."""

import json
from pathlib import Path

import pytest

from support.cli.train_command import started
from support.report.pages import ABOUT, titles_of
from support.report.profile_records import record
from unisono.cli.main import app
from unisono.errors import UnisonoError
from unisono.measure.profile import study
from unisono.recipe import Recipe


def test_tables_json_and_a_trace_of_two_ranks(tmp_path):
    ended = started("profile", "--model", "bn-mlp:8", "--batches", "6", "--ranks", "2", "--out", "o", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    for word in ("phases of a step", "BatchNorm", "matmul", "Looking cost", "rank 1", "Written: o/profile.json"):
        assert word in ended.stdout
    events = json.loads((tmp_path / "o" / "trace.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1}
    assert {"wait", "data", "update"} <= {event["name"] for event in events}
    assert titles_of(tmp_path / "o") == ["Profile", *ABOUT]
    assert json.loads((tmp_path / "o" / "about.json").read_text())["recipe"]["epochs"] == Recipe().learning.epochs
    again = started("profile", "--batches", "6", "--out", "o", cwd=tmp_path)
    assert again.returncode == 2
    assert "holds profile.json, trace.json already" in again.stderr


def test_activations_side_by_side(tmp_path):
    words = ["--activations", "relu,gelu", "--batches", "4", "--ranks", "1", "--no-memory"]
    ended = started("profile", *words, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "times relu" in ended.stdout
    assert "gelu" in ended.stdout
    assert "memory" not in ended.stdout


def test_what_was_profiled_before_a_failure_and_an_interruption_is_kept(tmp_path, monkeypatch, capsys):
    """The profiles are made up: relu's is there, tanh's fails, in gelu's somebody presses Ctrl-C."""

    def measure(job, look):
        if job.recipe.model.activation == "tanh":
            raise UnisonoError("the loss became inf", hint="lower --lr")
        if job.recipe.model.activation == "gelu":
            raise KeyboardInterrupt
        return record()

    monkeypatch.setattr(study, "measure", measure)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        app(["profile", "--activations", "relu,tanh,gelu", "--out", "o"], exit_on_error=False)
    told = capsys.readouterr()
    assert "tanh is left out: the loss became inf" in told.err
    assert "times relu" in told.out
    assert [found["activation"] for found in json.loads(Path("o/profile.json").read_text())] == ["relu"]


def test_nothing_but_failures_is_one(tmp_path, monkeypatch):
    def measure(job, look):
        raise UnisonoError("the loss became inf")

    monkeypatch.setattr(study, "measure", measure)
    monkeypatch.chdir(tmp_path)
    for activations, told in (("relu,tanh", "none of the activations"), ("relu", "the loss became inf")):
        with pytest.raises(UnisonoError, match=told):
            app(["profile", "--activations", activations], exit_on_error=False)
