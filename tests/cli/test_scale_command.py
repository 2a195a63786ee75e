"""`unisono scale` as a user meets it: real runs on the digits, one epoch each."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from support.cli.forked_command import forked
from unisono.report.html.document import sections_of
from unisono.report.run.load import load as load_run

COMMAND = [sys.executable, "-m", "unisono", "scale"]
SMALL = ["--epochs", "1", "--grid", "1x1,1x2", "--repeat", "1"]


def scale(*arguments: str, cwd: Path) -> subprocess.CompletedProcess:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=100, check=False, cwd=cwd)


def test_a_study_is_shown_written_and_found_again(tmp_path):
    ended = scale(*SMALL, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "Bits: one weights_sha256 in all 2 runs" in ended.stdout
    told = [line for line in ended.stderr.splitlines() if " of training, " in line]
    assert len(told) == 2
    assert all(line.endswith(" from start to exit") for line in told)  # "in all" is a column, of another time
    (study,) = (tmp_path / "studies").iterdir()
    rows = json.loads((study / "scale.json").read_text())
    assert [row["grid"] for row in rows] == ["1x1", "1x2"]
    assert all(row["samples_per_s"] > 0 and row["same_bits"] for row in rows)
    for name in ("scale.csv", "scale.md", "scale.tex", "scale.svg", "scale.txt"):
        assert (study / name).stat().st_size > 50, name
    assert [section.title for section in sections_of([load_run(study)])] == [
        "Scaling", "How to reproduce it", "Recipe", "Machine",
    ]  # fmt: skip
    about = json.loads((study / "about.json").read_text())
    assert about["command"] == " ".join(["unisono", "scale", *SMALL])
    assert about["varied"] == ["ranks"]
    assert about["recipe"]["epochs"] == 1
    assert "Short runs: " in ended.stdout
    again = scale(*SMALL, cwd=tmp_path)
    assert "2 of them are there already" in again.stderr
    assert len((study / "cells.jsonl").read_text().splitlines()) == 2
    assert "nothing is left to run" in scale(*SMALL, "--dry-run", cwd=tmp_path).stdout


def test_a_dry_run_shows_the_plan_and_leaves_nothing(tmp_path):
    ended = scale("--grid", "1x1,1x2", "--repeat", "2", "--warmup", "1", "--dry-run", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    order = [line.split()[1] for line in ended.stdout.splitlines() if "grid=" in line and line[:4].strip().isdigit()]
    assert order == [f"grid=1x{ranks}" for ranks in (1, 2, 2, 1, 1, 2)]
    assert "for 6 runs, from one epoch of grid=1x1" in ended.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--grid", "2x2"], "2 nodes are not reached from here"),
        (["--grid", "many"], "is no NODESxRANKS"),
        (["--grid", "1x1,1x100000"], "--grid 1x100000: more than 4,096 ranks on one machine"),
        (["--repeat", "0"], "--repeat is 0"),
        (["--timeout-s", "-1"], "--timeout-s is -1.0"),
        (["--strategy", "async"], "its ranks are masters and workers"),
        (["nowhere.toml"], "recipe 'nowhere.toml'"),
        (["--data", "synthetic:rows=97", "--data-dir", "mine"], "did you mean --data mine?"),
        (["--dry-run", "--data-dir", "mine"], "did you mean --data mine?"),
        (["--out", "/proc/nothing"], "--out /proc/nothing"),
        (["--dry-run", "--grid", "1x1,1x4", "--shards", "2"], "--shards 2 is less than --ranks 4: ranks would"),
        (["--dry-run", "--grid", "1x4", "--strategy", "ddp", "--shards", "2"], "--shards 2 with --strategy ddp: a"),
    ],
)
def test_mistakes_are_refused_before_anything_runs(arguments, message, tmp_path):
    ended = forked("scale", *arguments, cwd=tmp_path)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert "HINT" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("signum", "slow"), [(signal.SIGINT, "1:1.1"), (signal.SIGTERM, "1:1.1"), (signal.SIGKILL, "1:1e6")]
)
def test_an_interruption_keeps_what_was_finished_and_leaves_no_process(signum, slow, tmp_path):
    """The first cell is refused at once, for it has no rank 1; the second goes on for ever, and is struck."""
    arguments = ["--grid", "1x1,1x2", "--repeat", "1", "--out", "here", "--slow", slow, "--epochs", "100000"]
    command = subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path)
    me, tree = psutil.Process(command.pid), []
    while not (tmp_path / "here/cells.jsonl").exists() or len(tree) < 3:  # the second run and its two ranks
        assert command.poll() is None, command.stderr.read()
        tree = me.children(recursive=True)
        time.sleep(0.02)
    command.send_signal(signum)
    shown, errors = command.communicate(timeout=60)
    _, alive = psutil.wait_procs(tree, timeout=20)
    assert alive == []
    assert command.returncode == (-signum if signum == signal.SIGKILL else 75)
    assert len((tmp_path / "here/cells.jsonl").read_text().splitlines()) == 1
    if signum != signal.SIGKILL:
        told = b"interrupted before anything was measured; the study is in here\nHINT: the same command goes on\n"
        assert (shown, errors.endswith(told)) == (b"", True), errors
