"""Ctrl-C and SIGTERM in the middle of real studies: what is finished is kept, no process or file is left."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from unisono.errors import RESUME_ME

COMMAND = [sys.executable, "-m", "unisono"]


def strike(
    words: list[str], cwd: Path, ready: Callable[[str], bool], ranks: int, signum: int = signal.SIGINT
) -> tuple[int, str, str]:
    """Runs the command until it is `ready`, told what it has said, and has so many descendants; then Ctrl-C, as a
    terminal sends it: to the whole group; another signal twice, as batch systems may. Exit code, standard output,
    standard error."""
    rest = cwd / "tmp"
    rest.mkdir()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        usual = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        command = subprocess.Popen(
            [*COMMAND, *words], stdout=out, stderr=err, cwd=cwd, process_group=0, env=usual | {"TMPDIR": str(rest)}
        )
        try:
            tree: list[psutil.Process] = []
            while len(tree) < ranks or not ready(os.pread(out.fileno(), 1 << 20, 0).decode()):
                assert command.poll() is None, os.pread(err.fileno(), 1 << 20, 0).decode()
                tree = psutil.Process(command.pid).children(recursive=True)
                time.sleep(0.02)  # looking takes the cores away from what is looked at
            for _ in range(1 if signum == signal.SIGINT else 2):
                os.killpg(command.pid, signum)
            code = command.wait(60)
        finally:
            command.kill()
            command.wait()
        assert psutil.wait_procs(tree, timeout=20)[1] == []
        assert list(rest.iterdir()) == []
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


TUNE = ["tune", "--ranks", "1,2", "--threads", "1", "--seconds", "1000"]


@pytest.mark.parametrize(
    ("words", "signum"),
    [(TUNE, signal.SIGINT), (TUNE, signal.SIGTERM), (["predict", "--nodes", "2..4"], signal.SIGINT)],
)
def test_what_was_finished_is_kept(words, signum, tmp_path):
    records = tmp_path / "o" / "cells.jsonl"
    code, shown, errors = strike([*words, "--out", "o"], tmp_path, lambda said: records.exists(), 2, signum)
    assert code == RESUME_ME
    assert "unisono: interrupted; what was finished is kept in o\nHINT: the same command goes on" in errors
    assert "Traceback" not in errors
    assert {json.loads(line)["status"] for line in records.read_text().splitlines()} == {"finished"}
    assert ("settings that were tried" in shown) == (words[0] == "tune")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_what_was_profiled_is_kept(signum, tmp_path):
    words = ["profile", "--activations", "relu,gelu", "--batches", "2000", "--ranks", "1", "--out", "o"]
    code, shown, errors = strike(words, tmp_path, lambda said: "mlp:64, gelu on digits" in said, 1, signum)
    assert code == -signal.SIGINT
    assert errors.endswith("unisono: interrupted\n")
    assert "Traceback" not in errors
    assert [found["activation"] for found in json.loads((tmp_path / "o/profile.json").read_text())] == ["relu"]
    assert "times relu" in shown
    assert "Written: o/profile.json, o/trace.json\n" in shown
