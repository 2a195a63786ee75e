"""`unisono report` as a user meets it: from real runs to the file."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from unisono.errors import UserError
from unisono.report.html.report_file import check

COMMAND = [sys.executable, "-m", "unisono"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "mine"
    arguments = ["train", "--epochs", "2", "--out", str(out)]
    subprocess.run([*COMMAND, *arguments], check=True, capture_output=True, timeout=60)
    return out


@pytest.fixture
def run(trained, tmp_path) -> Path:
    """A copy of it that may be changed."""
    return Path(shutil.copytree(trained, tmp_path / "mine"))


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


def test_an_older_report_is_replaced_and_nothing_else(called, run, tmp_path):
    assert called(run)[0] == 0
    assert called(run)[0] == 0
    (tmp_path / "thesis.html").write_text("<p>years of work</p>")
    code, _, errors = called(run, "--out", "thesis.html")
    assert (code, "is no report of unisono's" in errors, "HINT" in errors) == (2, True, True)
    assert (tmp_path / "thesis.html").read_text() == "<p>years of work</p>"


def test_what_is_damaged_is_said_and_the_page_is_written(called, run):
    (run / "metrics.jsonl").write_text((run / "metrics.jsonl").read_text()[:-20])
    code, told, _ = called(run)
    assert code == 0
    assert "metrics.jsonl: the last line is cut short" in told
    assert "What could not be read" in (run / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "there is no run 'nothing'"),
        (["."], "give one of the runs in it: mine"),
        (["mine/recipe.toml"], "is a file"),
        (["mine", "--out", "mine"], "is a directory"),
        (["mine", "--out", "no/such/place.html"], "cannot be written: No such file or directory"),
        (["mine", "--out", "mine/recipe.toml/x.html"], "cannot be written: Not a directory"),
    ],
)
def test_mistakes_give_one_message_and_exit_code_2(arguments, message, called, run):
    code, told, errors = called(*arguments)
    assert (code, told) == (2, "")
    assert message in errors
    assert "HINT" in errors


def test_without_a_run_the_command_says_what_it_wants(called):
    code, _, errors = called()
    assert code == 2
    assert "RUN" in errors
    assert "HINT" in errors


def test_a_pipe_is_neither_waited_for_nor_replaced(tmp_path):
    os.mkfifo(tmp_path / "report.html")
    with pytest.raises(UserError, match=r"report\.html is not a regular file"):
        check(tmp_path / "report.html", given=False)
