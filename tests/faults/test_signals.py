"""Signals: one asks for an end that can be resumed, a second one ends at once; ranks are not concerned."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from unisono.recipe import Recipe
from unisono.runs.lifecycle import run_recipe
from unisono.storage.resume import recipe_of
from unisono.storage.snapshots.snapshot import require_newest

RECIPE = Recipe.from_options(epochs=60, ranks=3, model="bn-mlp")
OPTIONS = ["--epochs", "60", "--ranks", "3", "--model", "bn-mlp"]
COMMAND = [sys.executable, "-m", "unisono", "train", *OPTIONS]


@contextmanager
def command(out: Path, slow: str = "0:40") -> Iterator[tuple[subprocess.Popen, list[psutil.Process]]]:
    """`unisono train` in a process group of its own, as a terminal gives it one, when it is in its third epoch.

    slow: else 60 epochs are over before they are struck.
    """
    words = [*COMMAND, "--slow", slow, "--out", str(out)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0) as started:
        try:
            while not started.stdout.readline().startswith("epoch 2/"):
                assert started.poll() is None
            yield started, psutil.Process(started.pid).children(recursive=True)
        finally:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> str:
    return run_recipe(RECIPE.with_options(out=str(tmp_path_factory.mktemp("quiet") / "run")))["weights_sha256"]


@pytest.mark.parametrize(
    ("number", "everybody"),
    [(signal.SIGTERM, False), (signal.SIGUSR1, False), (signal.SIGINT, True), (signal.SIGTERM, True)],
)
def test_the_first_one_leaves_a_snapshot_to_go_on_from(tmp_path, expected, number, everybody):
    """Ctrl-C reaches the whole process group; so does what SLURM sends."""
    with command(tmp_path / "run") as (started, ranks):
        os.killpg(started.pid, number) if everybody else started.send_signal(number)
        _, errors = started.communicate(timeout=100)
    assert started.returncode == 75, errors
    assert f"the run was asked to end; everything up to here is in {tmp_path / 'run' / 'snapshots'}" in errors
    assert f"HINT: go on with unisono train --resume {tmp_path / 'run'}" in errors
    assert not any(process.is_running() for process in ranks)
    folder = tmp_path / "run" / "snapshots"
    position = require_newest(folder).position
    assert position > 2 * 24
    summary = run_recipe(recipe_of(str(tmp_path / "run"), {"ranks": 2, "slow": ""}))
    assert (summary["weights_sha256"], summary["status"]) == (expected, "finished")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == [f'{{"epoch": {epoch}' for epoch in range(1, 61)]
    assert require_newest(folder).facts["epoch"] == 60, "it can be trained on from its end"


def test_the_second_one_ends_at_once(tmp_path):
    with command(tmp_path / "run") as (started, ranks):
        ranks[1].send_signal(signal.SIGSTOP)  # so that the end of the round does not come
        started.send_signal(signal.SIGINT)
        _until_handled(started.pid, signal.SIGINT)
        started.send_signal(signal.SIGTERM)  # a batch system warns with one kind and ends with another
        _until_handled(started.pid, signal.SIGTERM)
        assert started.poll() is None
        started.send_signal(signal.SIGINT)
        _, errors = started.communicate(timeout=100)
    assert started.returncode == -signal.SIGINT
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert psutil.wait_procs(ranks, timeout=10)[1] == []


def test_one_that_comes_twice_is_one(tmp_path):
    """A job of SLURM is preempted: the supervisor gets SIGTERM from SLURM, and once more from its srun, which got it,
    too."""
    with command(tmp_path / "run") as (started, ranks):
        ranks[1].send_signal(signal.SIGSTOP)
        for _ in range(2):
            started.send_signal(signal.SIGTERM)
            _until_handled(started.pid, signal.SIGTERM)
        ranks[1].send_signal(signal.SIGCONT)
        _, errors = started.communicate(timeout=100)
    assert started.returncode == 75, errors
    assert require_newest(tmp_path / "run" / "snapshots").position > 2 * 24


def test_an_echo_that_comes_while_the_run_is_being_left_changes_nothing(tmp_path):
    with command(tmp_path / "run") as (started, _):
        deadline = time.monotonic() + 3.0  # later it would be a second request
        while started.poll() is None and time.monotonic() < deadline:
            started.send_signal(signal.SIGTERM)
            time.sleep(0.005)
        _, errors = started.communicate(timeout=100)
    assert started.returncode == 75, errors
    assert f"HINT: go on with unisono train --resume {tmp_path / 'run'}" in errors
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "halted"


def _until_handled(pid: int, number: int) -> None:
    """Until Python has run its handler: no longer pending says that it will, asleep again says that it has. A second
    one of the same kind before that would count as the same."""
    while True:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        pending = int(status["ShdPnd"], 16) >> number - 1 & 1
        if not pending and status["State"].strip().startswith("S"):
            return


def test_what_is_sent_to_ranks_does_not_concern_them(tmp_path, expected):
    with command(tmp_path / "run", slow="0:10") as (started, ranks):
        for rank in ranks:
            for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
                rank.send_signal(number)
        output, errors = started.communicate(timeout=100)
    assert started.returncode == 0, errors
    assert "took over" not in output
    assert expected[:16] in output
