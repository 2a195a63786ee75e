"""`unisono scale` as a user meets it: real runs on the digits, one epoch each."""

import json
import subprocess
import time

import psutil

from support.cli.train_command import UNISONO, started
from support.report.pages import ABOUT, titles_of

COMMAND = [*UNISONO, "scale"]
SMALL = ["--epochs", "1", "--grid", "1x1,1x2", "--repeat", "1"]


def test_a_study_is_shown_written_and_found_again(tmp_path):
    ended = started("scale", *SMALL, cwd=tmp_path)
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
    assert titles_of(study) == ["Scaling", *ABOUT]
    about = json.loads((study / "about.json").read_text())
    assert about["command"] == " ".join(["unisono", "scale", *SMALL])
    assert about["varied"] == ["ranks"]
    assert about["recipe"]["epochs"] == 1
    assert "Short runs: " in ended.stdout
    again = started("scale", *SMALL, cwd=tmp_path)
    assert "2 of them are there already" in again.stderr
    assert len((study / "cells.jsonl").read_text().splitlines()) == 2
    assert "nothing is left to run" in started("scale", *SMALL, "--dry-run", cwd=tmp_path).stdout


def test_a_dry_run_shows_the_plan_and_leaves_nothing(tmp_path):
    ended = started("scale", "--grid", "1x1,1x2", "--repeat", "2", "--warmup", "1", "--dry-run", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    order = [line.split()[1] for line in ended.stdout.splitlines() if "grid=" in line and line[:4].strip().isdigit()]
    assert order == [f"grid=1x{ranks}" for ranks in (1, 2, 2, 1, 1, 2)]
    assert "for 6 runs, from one epoch of grid=1x1" in ended.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_kill_leaves_no_process_and_what_was_recorded(tmp_path):
    """The first cell is refused at once, for it has no rank 1; the second goes on for ever, and is struck."""
    arguments = ["--grid", "1x1,1x2", "--repeat", "1", "--out", "here", "--slow", "1:1e6", "--epochs", "100000"]
    command = subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path)
    me, tree = psutil.Process(command.pid), []
    while not (tmp_path / "here/cells.jsonl").exists() or len(tree) < 3:  # the second run and its two ranks
        assert command.poll() is None, command.stderr.read()
        tree = me.children(recursive=True)
        time.sleep(0.02)
    command.kill()
    command.communicate(timeout=60)
    assert psutil.wait_procs(tree, timeout=20)[1] == []
    assert len((tmp_path / "here/cells.jsonl").read_text().splitlines()) == 1
