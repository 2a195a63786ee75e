"""`unisono compare` as a user meets it: real runs on the digits, one epoch each."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.cli.forked_command import forked
from unisono.report.html.document import sections_of
from unisono.report.run.load import load as load_run


def compare(*arguments: str, cwd: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "unisono", "compare", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=cwd)


def test_a_failure_is_a_row_and_what_changes_nothing_is_said(tmp_path):
    ended = compare("--over", "ranks+precision=1+fp32,2+fp32,1+fp8", "--epochs", "1", "--repeat", "1", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "Equal bits" in ended.stdout
    assert "ranks=1 precision=fp8: --precision fp8: products of 8-bit floats need a GPU" in ended.stdout
    (study,) = (tmp_path / "studies").iterdir()
    rows = json.loads((study / "compare.json").read_text())
    assert [(row["ranks"], row["precision"], "reason" in row) for row in rows] == [
        ("1", "fp32", False), ("2", "fp32", False), ("1", "fp8", True),
    ]  # fmt: skip
    assert len(rows[0]["accuracies"]) == 1
    assert [section.title for section in sections_of([load_run(study)])] == [
        "Comparison", "How to reproduce it", "Recipe", "Machine",
    ]  # fmt: skip
    for name in ("compare.csv", "compare.md", "compare.tex", "compare.txt"):
        assert "fp8" in (study / name).read_text(), name


def test_a_study_in_which_everything_failed_fails(tmp_path):
    ended = compare("--over", "precision=fp8", cwd=tmp_path)
    assert ended.returncode == 1
    assert "precision=fp8: --precision fp8" in ended.stdout
    assert "every run failed: the reasons are above\nHINT: --retry" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "compare without --over"),
        (["--over", "stratgy=sync"], "did you mean 'strategy'"),
        (["--over", "ranks=0"], "--ranks is 0"),
        (["--over", "ranks=1,2", "--over", "ranks=3"], "--over names ranks twice"),
        (["--over", "ranks=1,9", "--shards", "8", "--dry-run"], "--shards 8 is less than --ranks 9: ranks would"),
    ],
)
def test_mistakes_are_refused_before_anything_runs(arguments, message, tmp_path):
    ended = forked("compare", *arguments, cwd=tmp_path)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert "HINT" in ended.stderr
    assert list(tmp_path.iterdir()) == []
