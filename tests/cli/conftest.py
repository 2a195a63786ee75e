"""Fixtures of tests of commands."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.cli.forked_command import forked
from unisono.cli.main import main


@pytest.fixture
def command(monkeypatch, capsys) -> Callable[..., tuple[int, str, str]]:
    """command("weights", "run"): calls `unisono weights run` in this process; its exit code, output, errors."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["unisono", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        found = capsys.readouterr()
        return ended.value.code or 0, found.out, found.err

    return call


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """What `unisono train` leaves; batch norm, so that there are buffers."""
    out = tmp_path_factory.mktemp("runs") / "mine"
    assert forked("train", "--model", "bn-mlp:16,12", "--epochs", "2", "--out", str(out)).returncode == 0
    return out


@pytest.fixture
def run(trained, tmp_path) -> Path:
    """A copy of it that may be changed."""
    return Path(shutil.copytree(trained, tmp_path / "mine"))
