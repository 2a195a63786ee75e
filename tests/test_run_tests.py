"""The whole suite in parts: what fails runs once more, and nothing that fails twice is green."""

from pathlib import Path

import pytest
import run_tests

from support.paths import ROOT

ONCE = """
from pathlib import Path

def test_good():
    with open(Path(__file__).with_name("runs"), "a") as log:
        log.write("good ")

def test_once():
    before = Path(__file__).with_name("before")
    assert before.exists() or before.write_text("") is None and False
"""
"""Fails when it is run for the first time."""


@pytest.fixture
def part(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take most of the time, and nothing here needs them

    def make(text: str) -> run_tests.Part:
        file = tmp_path / "test_made.py"
        file.write_text(text)
        return run_tests.Part("made", (str(file), "-q"), tmp_path / "notes")

    return make


def test_what_passes_at_the_second_try_is_named_and_the_rest_is_not_run_again(part, tmp_path, capfd):
    made = part(ONCE)
    assert run_tests.run_all([made]) == {made: run_tests.FAILED}
    assert run_tests.run_again(made) == 0
    assert "passed at the second try: " in (output := capfd.readouterr().out)
    assert output.rstrip().endswith("test_made.py::test_once")
    assert (tmp_path / "runs").read_text() == "good "


def test_what_fails_twice_is_red(part, capfd):
    made = part("def test_bad():\n    assert False\n")
    assert run_tests.run_all([made]) == {made: run_tests.FAILED}
    assert run_tests.run_again(made) == run_tests.FAILED
    assert "second try" not in capfd.readouterr().out


def test_what_cannot_be_collected_is_red(part):
    made = part("import nothing_of_this_name\n")
    assert run_tests.run_all([made])[made] not in (0, run_tests.FAILED)


def test_a_part_that_is_green(part):
    made = part("def test_good():\n    pass\n")
    assert run_tests.run_all([made]) == {made: 0}


def test_the_slowest_come_first_and_the_sum_is_of_all(part):
    made = part("import time\n\ndef test_quick():\n    pass\n\ndef test_slow():\n    time.sleep(0.3)\n")
    run_tests.run_all([made])
    heading, first, second = run_tests.slowest([made])
    assert heading.startswith("the slowest of 2 tests")
    assert "::test_slow" in first
    assert "0.3 s" in first
    assert "::test_quick" in second


def test_each_file_is_in_one_part(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    *parts, rest = run_tests.plan(tmp_path)
    named = [argument for part in parts for argument in part.arguments]
    assert len(set(named)) == len(named)
    assert set(rest.arguments) == {f"--ignore={name}" for name in named}
