"""Fixtures of tests of commands."""

import sys
from collections.abc import Callable

import pytest

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
