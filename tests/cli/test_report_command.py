"""`unisono report` as a user meets it: from real runs to the file."""

import os
import shutil
from collections.abc import Callable
from functools import partial

import pytest

from unisono.errors import UserError
from unisono.report.html.document import check_target


@pytest.fixture
def called(command, monkeypatch, tmp_path) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(tmp_path)
    return partial(command, "report")


def test_a_real_run_gives_a_whole_page(called, run):
    code, told, errors = called(run)
    assert (code, errors) == (0, "")
    assert f"Written: {run / 'report.html'}" in told
    page = (run / "report.html").read_text()
    for part in ("Verdict", "test accuracy", "What each rank did", "Contribution to the updates", "unisono train"):
        assert part in page
    assert "could not be made" not in page
    assert "What could not be read" not in page
    assert sorted(run.glob(".report*")) == []  # no draft is left


def test_several_runs_go_to_a_file_here(called, run, tmp_path):
    shutil.copytree(run, tmp_path / "other")
    code, told, _ = called(run, "other")
    assert (code, told.startswith("Written: report.html")) == (0, True)
    assert "All 2 runs ended with the same weights" in (tmp_path / "report.html").read_text()


def test_an_older_report_is_replaced(called, run):
    assert called(run)[0] == 0
    assert called(run)[0] == 0


def test_what_is_damaged_is_said_and_the_page_is_written(called, run):
    (run / "metrics.jsonl").write_text((run / "metrics.jsonl").read_text()[:-20])
    code, told, _ = called(run)
    assert code == 0
    assert "metrics.jsonl: the last line is cut short" in told
    assert "What could not be read" in (run / "report.html").read_text()


def test_a_pipe_is_neither_waited_for_nor_replaced(tmp_path):
    os.mkfifo(tmp_path / "report.html")
    with pytest.raises(UserError, match=r"report\.html is not a regular file"):
        check_target(tmp_path / "report.html", given=False)
