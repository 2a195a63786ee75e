"""`unisono compare` as a user meets it: real runs on the digits, one epoch each."""

import json

from support.cli.train_command import started
from support.report.pages import ABOUT, titles_of


def test_a_failure_is_a_row_and_what_changes_nothing_is_said(tmp_path):
    words = ["--over", "ranks+precision=1+fp32,2+fp32,1+fp8", "--epochs", "1", "--repeat", "1"]
    ended = started("compare", *words, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "Equal bits" in ended.stdout
    assert "ranks=1 precision=fp8: --precision fp8: products of 8-bit floats need a GPU" in ended.stdout
    (study,) = (tmp_path / "studies").iterdir()
    rows = json.loads((study / "compare.json").read_text())
    assert [(row["ranks"], row["precision"], "reason" in row) for row in rows] == [
        ("1", "fp32", False), ("2", "fp32", False), ("1", "fp8", True),
    ]  # fmt: skip
    assert len(rows[0]["accuracies"]) == 1
    assert titles_of(study) == ["Comparison", *ABOUT]
    for name in ("compare.csv", "compare.md", "compare.tex", "compare.txt"):
        assert "fp8" in (study / name).read_text(), name


def test_a_study_in_which_everything_failed_fails(tmp_path):
    ended = started("compare", "--over", "precision=fp8", cwd=tmp_path)
    assert ended.returncode == 1
    assert "precision=fp8: --precision fp8" in ended.stdout
    assert "every run failed: the reasons are above\nHINT: --retry" in ended.stderr
