"""Real runs of `unisono train`, small ones."""

import os

import psutil
import pytest

from unisono.errors import CommTimeout
from unisono.recipe import Recipe
from unisono.study.cells import Cell
from unisono.study.process import read_summary, reason_of, run_cell

SMALL = Recipe.from_options(epochs=1, ranks=2)


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

    monkeypatch.setattr("unisono.study.process.Subprocess.wait", wait)
    record = run(SMALL.with_options(precision="fp8"), tmp_path)
    assert (record["status"], record["exit_code"]) == ("failed", None)
    assert record["reason"] == "it closed its output and went on"


@pytest.mark.parametrize(
    ("said", "code", "reason"),
    [
        ("noise\nunisono: no such thing\nHINT: another\n", 2, "no such thing"),
        ("Traceback\n  line\nValueError: bad\n", 1, "ValueError: bad"),
        ("Traceback\n  line\nValueError: bad\n(left out: 14 frames of unisono)\n", 1, "ValueError: bad"),
        (
            "unisono: Traceback (most recent call last):\n  line\n    ^^\nValueError: bad\nsrun: error: n2: Exited\n",
            1,
            "ValueError: bad",
        ),
        (
            "unisono: rank 1: Traceback (most recent call last):\n  line\nValueError: bad\n(left out: 3 frames)\n",
            1,
            "rank 1: ValueError: bad",
        ),
        ("unisono: Traceback (most recent call last):\n  line\n", 1, "Traceback (most recent call last):"),
        ("", -9, "it was killed by SIGKILL"),
        ("\n", 3, "it ended with exit code 3"),
    ],
)
def test_the_line_that_tells_why(said, code, reason):
    assert reason_of(said, code) == reason
