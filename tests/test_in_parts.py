"""The whole suite in parts: what fails is run once more, and nothing that fails twice is green."""

from pathlib import Path

import in_parts
import pytest

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
def part(tmp_path: Path):
    def make(text: str) -> in_parts.Part:
        file = tmp_path / "test_made.py"
        file.write_text(text)
        return in_parts.Part("made", (str(file), "-q"), tmp_path / "cache")

    return make


def test_what_passes_at_the_second_try_is_named_and_the_rest_is_not_run_again(part, tmp_path, capfd):
    made = part(ONCE)
    assert in_parts.run_all([made]) == {made: in_parts.FAILED}
    assert in_parts.run_again(made) == 0
    assert "passed at the second try: " in (told := capfd.readouterr().out)
    assert told.rstrip().endswith("test_made.py::test_once")
    assert (tmp_path / "runs").read_text() == "good "


def test_what_fails_twice_is_red(part, capfd):
    made = part("def test_bad():\n    assert False\n")
    assert in_parts.run_all([made]) == {made: in_parts.FAILED}
    assert in_parts.run_again(made) == in_parts.FAILED
    assert "second try" not in capfd.readouterr().out


def test_what_cannot_be_collected_is_red(part):
    made = part("import nothing_of_this_name\n")
    assert in_parts.run_all([made])[made] not in (0, in_parts.FAILED)


def test_a_part_that_is_green(part):
    made = part("def test_good():\n    pass\n")
    assert in_parts.run_all([made]) == {made: 0}
