"""Real runs of `unisono train`, small ones."""

import json
import os

import psutil
import pytest

from unisono.errors import CommTimeout
from unisono.recipe import Recipe
from unisono.study.cell_process import outcome_of, read_summary, reason_of, run_cell
from unisono.study.cells import Cell

TRACE = "Traceback (most recent call last):"
SMALL = Recipe.from_options(epochs=1, ranks=2)
USED = """s_after_start,what,utilisation,memory_bytes,power_w,temperature_c
0.25,rank 0,0.9,1,,
0.25,all ranks,1.5,2,,
0.25,node,1.9,2,,
"""


def run(recipe: Recipe, folder, timeout_s: float = 100.0, **more):
    return run_cell(Cell({}, recipe), folder / "recipe.toml", folder / "run", timeout_s, **more)


def test_a_run_leaves_its_summary_and_its_lines(tmp_path):
    lines: list[str] = []
    record = run(SMALL, tmp_path, on_line=lines.append)
    assert (record["status"], record["reason"], record["exit_code"]) == ("finished", "", 0)
    assert record["summary"] == read_summary(tmp_path / "run")
    assert record["elapsed_s"] >= record["summary"]["train_s"] > 0
    assert any(line.startswith("epoch 1/1") for line in lines)
    assert 0 <= record["others_cores"] < os.cpu_count()


def test_a_recipe_that_cannot_be_is_a_reason(tmp_path):
    record = run(SMALL.with_options(precision="fp8"), tmp_path)
    assert (record["status"], record["exit_code"], record["summary"]) == ("failed", 2, {})
    assert "fp8" in record["reason"]
    assert "HINT" in record["error"]
    assert "HINT" not in record["reason"]


def test_a_run_that_takes_too_long_is_ended(tmp_path):
    record = run(SMALL.with_options(epochs=100_000), tmp_path, timeout_s=0.05)
    assert record["status"] == "failed"
    assert record["exit_code"] is None
    assert record["reason"] == "it took longer than 0.05 s (--timeout-s) and was ended"
    assert psutil.Process().children(recursive=True) == []


def test_a_run_that_closes_its_output_and_goes_on_is_a_record(tmp_path, monkeypatch):
    def wait(self, timeout_s=30.0):
        raise CommTimeout("it closed its output and went on")

    monkeypatch.setattr("unisono.study.cell_process.Subprocess.wait", wait)
    record = run(SMALL.with_options(precision="fp8"), tmp_path)
    assert (record["status"], record["exit_code"]) == ("failed", None)
    assert record["reason"] == "it closed its output and went on"


@pytest.mark.parametrize(
    ("said", "code", "reason"),
    [
        ("noise\nunisono: no such thing\nHINT: another\n", 2, "no such thing"),
        ("Traceback\n  line\nValueError: bad\n", 1, "ValueError: bad"),
        ("Traceback\n  line\nValueError: bad\n(left out: 14 frames of unisono)\n", 1, "ValueError: bad"),
        (f"unisono: {TRACE}\n  line\n    ^^\nValueError: bad\nsrun: error: n2: Exited\n", 1, "ValueError: bad"),
        (f"unisono: rank 1: {TRACE}\n  line\nValueError: bad\n(left out: 3 frames)\n", 1, "rank 1: ValueError: bad"),
        (f"unisono: {TRACE}\n  line\n", 1, TRACE),
        ("", -9, "it was killed by SIGKILL"),
        ("\n", 3, "it ended with exit code 3"),
    ],
)
def test_the_line_that_tells_why(said, code, reason):
    assert reason_of(said, code) == reason


def metrics(folder, *epochs):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(epoch) + "\n" for epoch in epochs))


def test_the_best_part_that_was_scored_in_every_epoch_is_scored_epoch_by_epoch(tmp_path):
    metrics(tmp_path, {"train_accuracy": 0.5, "test_accuracy": 0.4}, {"train_accuracy": 0.7, "test_accuracy": 0.6})
    assert outcome_of(tmp_path) == {"accuracies": [0.4, 0.6], "scored": "test"}
    metrics(tmp_path, {"train_accuracy": 0.5}, {"train_accuracy": 0.7, "test_accuracy": 0.6})
    assert outcome_of(tmp_path) == {"accuracies": [0.5, 0.7], "scored": "train"}


def test_cores_are_those_that_the_ranks_used(tmp_path):
    (tmp_path / "utilisation.csv").write_text(f"{USED}2.25,all ranks,0.5,2,,\n")
    assert outcome_of(tmp_path) == {"node_cores": 1.0}


def test_what_is_missing_or_damaged_says_nothing(tmp_path):
    assert outcome_of(tmp_path) == {}
    (tmp_path / "metrics.jsonl").write_text('{"train_accuracy": 0.5}\n{"train_')
    (tmp_path / "utilisation.csv").write_text(f"{USED}2.25,all ranks,much,2,,\n")
    assert outcome_of(tmp_path) == {}
    metrics(tmp_path, {"train_accuracy": None, "train_loss": 0.3})
    assert outcome_of(tmp_path) == {}


def test_pipes_say_nothing(tmp_path):
    for name in ("metrics.jsonl", "utilisation.csv", "summary.json"):
        os.mkfifo(tmp_path / name)  # reading one would wait for a writer
    assert outcome_of(tmp_path) == {}
    assert read_summary(tmp_path) == {}
