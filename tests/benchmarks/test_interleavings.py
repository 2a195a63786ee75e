"""`benchmarks/interleavings.py`: its verdict can go either way, and what it prints repeats a fault."""

import re
import shlex
import sys

import interleavings
import pytest

from unisono.arena.membership.undo import Undo


@pytest.fixture
def command(monkeypatch, capsys):
    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["interleavings.py", *words])
        code = interleavings.main()
        return code, capsys.readouterr().out

    return run


def test_a_little_of_everything_is_all_equal(command):
    code, said = command("--minutes", "0.001", "--halts", "1")
    assert code == 0
    assert said.count("all equal") == 3


def test_every_schedule_within_the_bounds_is_run(command):
    code, said = command("--setting", "2 ranks", "--deaths", "0", "--switches", "1", "--all", "--minutes", "0")
    assert code == 0
    assert int(re.search(r"2 ranks: (\d+) runs", said)[1]) > 200


def test_a_fault_prints_a_command_that_repeats_it(command, monkeypatch):
    monkeypatch.setattr(Undo, "keep", lambda *given: None)
    code, said = command("--setting", "3 ranks", "--seed", "1")
    assert code == 1
    again = shlex.split(re.search(r"repeat it: python benchmarks/interleavings.py (.*)", said)[1])
    assert command(*again)[0] == 1
    monkeypatch.undo()
    assert command(*again)[0] == 0
