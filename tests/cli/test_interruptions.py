"""Ctrl-C in the middle of real studies: what is finished is kept, and no process, file or traceback is left."""

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


def strike(words: list[str], cwd: Path, ready: Callable[[str], bool], ranks: int) -> tuple[int, str, str]:
    """Runs the command until it is `ready`, told what it has said, and has so many descendants; then Ctrl-C, as a
    terminal sends it: to the whole group. Exit code, standard output, standard error."""
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
            os.killpg(command.pid, signal.SIGINT)
            code = command.wait(60)
        finally:
            command.kill()
            command.wait()
        assert psutil.wait_procs(tree, timeout=20)[1] == []
        assert list(rest.iterdir()) == []
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


@pytest.mark.parametrize(
    "words", [["tune", "--ranks", "1,2", "--threads", "1", "--seconds", "1000"], ["predict", "--nodes", "2..4"]]
)
def test_what_was_finished_is_kept(words, tmp_path):
    records = tmp_path / "o" / "cells.jsonl"
    code, shown, errors = strike([*words, "--out", "o"], tmp_path, lambda said: records.exists(), ranks=2)
    assert code == RESUME_ME
    assert "unisono: interrupted; what was finished is kept in o\nHINT: the same command goes on" in errors
    assert "Traceback" not in errors
    assert {json.loads(line)["status"] for line in records.read_text().splitlines()} == {"finished"}
    assert ("settings that were tried" in shown) == (words[0] == "tune")


def test_what_was_profiled_is_kept(tmp_path):
    words = ["profile", "--activations", "relu,gelu", "--batches", "2000", "--ranks", "1", "--out", "o"]
    code, shown, errors = strike(words, tmp_path, lambda said: "mlp:64, gelu on digits" in said, ranks=1)
    assert code == -signal.SIGINT
    assert errors.endswith("unisono: interrupted\n")
    assert "Traceback" not in errors
    assert [found["activation"] for found in json.loads((tmp_path / "o/profile.json").read_text())] == ["relu"]
    assert "times relu" in shown
    assert "Written: o/profile.json, o/trace.json\n" in shown
