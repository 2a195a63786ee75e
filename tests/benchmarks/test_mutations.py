"""Mutants differ from the code, are valid, and tests that look are seen to catch them."""

import ast
import random
from pathlib import Path

import pytest
from mutations import PARTS, Part, draw, fate, mutate, places

SOURCE = """
def clamp(value, least):
    found = value
    if value < least:
        found = least + 0
    return found
"""
TEST = """
from unisono.small import clamp

def test_clamp():
    assert clamp(3, 5) == 5
    assert clamp(7, 5) == 7
"""


def test_every_mutant_is_valid_code_that_differs():
    count = len(list(places(ast.parse(SOURCE))))
    found = {mutate(SOURCE, number) for number in range(count)}
    assert len(found) == count == 5
    assert ast.unparse(ast.parse(SOURCE)) not in found
    for text in found:
        compile(text, "mutant", "exec")


@pytest.fixture
def tree(tmp_path) -> Path:
    package, tests = tmp_path / "src/unisono", tmp_path / "tests"
    package.mkdir(parents=True)
    tests.mkdir()
    (package / "__init__.py").touch()
    (package / "small.py").write_text(SOURCE)
    (tests / "test_small.py").write_text(TEST)
    return tmp_path


def test_faults_are_caught_and_what_changes_nothing_survives(tree):
    part = Part("small", ("small.py",), ("tests", "tests/missing"))
    mutants = draw(tree / "src/unisono", part, 9, random.Random(1))
    fates = {mutant.what: fate(tree, part, mutant) for mutant in mutants if mutant.what != "statement dropped"}
    assert fates.keys() == {"condition negated", "comparison changed", "+ and - exchanged"}
    assert fates["condition negated"] == "caught by test_small.py::test_clamp"
    assert fates["+ and - exchanged"] == "survived"  # 5 - 0
    assert fates["comparison changed"] == "survived"  # of equal numbers it does not matter which


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_parts_have_sources_and_tests(part):
    root = Path(__file__).parents[2]
    assert len(draw(root / "src/unisono", part, 99, random.Random(2))) == 99
    assert sum((root / path).exists() for path in part.tests) >= 2
