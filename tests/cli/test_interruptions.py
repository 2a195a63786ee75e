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

from support.cli.train_command import UNISONO as COMMAND
from unisono.cli.main import app
from unisono.errors import RESUME_ME, UserError
from unisono.report.run.load import load


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


@pytest.mark.parametrize(("words", "signum"), [(TUNE, signal.SIGTERM), (["predict", "--nodes", "2..4"], signal.SIGINT)])
def test_what_was_finished_is_kept(words, signum, tmp_path):
    records = tmp_path / "o" / "cells.jsonl"

    def written(said: str) -> bool:
        return records.exists() and records.read_bytes().endswith(b"\n")

    code, shown, errors = strike([*words, "--out", "o"], tmp_path, written, 2, signum)
    assert code == RESUME_ME
    assert "unisono: interrupted; what was finished is kept in o\nHINT: the same command goes on" in errors
    assert "Traceback" not in errors
    assert {json.loads(line)["status"] for line in records.read_text().splitlines()} == {"finished"}
    assert ("settings that were tried" in shown) == (words[0] == "tune")


@pytest.mark.parametrize(
    ("words", "module"),
    [
        (["bench", "--transports", "shm", "--ranks", "1"], "measure.allreduce_bench"),
        (["profile"], "measure.profile.study"),
    ],
)
def test_what_was_interrupted_before_anything_was_measured_is_told_as_what_it_is(words, module, tmp_path, monkeypatch):
    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"unisono.{module}.measure", interrupted)
    out = str(tmp_path / "o")
    monkeypatch.setattr(sys, "argv", ["unisono", *words, "--out", out])
    with pytest.raises(KeyboardInterrupt):
        app(sys.argv[1:], exit_on_error=False)
    with pytest.raises(UserError, match=f"is a study of unisono {words[0]} that has nothing to show yet") as caught:
        load(out)
    assert f"run it again: unisono {words[0]} " in str(caught.value)


def test_what_was_profiled_is_kept(tmp_path):
    activations = ["relu", "gelu", "tanh", "sigmoid"]
    words = ["profile", "--activations", ",".join(activations), "--batches", "2000", "--ranks", "1", "--out", "o"]
    code, shown, errors = strike(words, tmp_path, lambda said: "mlp:64, gelu on digits" in said, 1, signal.SIGTERM)
    assert code == -signal.SIGINT
    assert errors.endswith("unisono: interrupted\n")
    assert "Traceback" not in errors
    kept = [found["activation"] for found in json.loads((tmp_path / "o/profile.json").read_text())]
    assert kept == activations[: len(kept)]
    assert 0 < len(kept) < len(activations)
    assert "times relu" in shown
    assert "Written: o/profile.json, o/trace.json\n" in shown
