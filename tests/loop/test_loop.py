"""The user's own loop: the questions are in checks_*.py, which run once, each file in a process of its own."""

import importlib
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

import unisono

pytestmark = pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")

HERE = Path(__file__).parent

MODULES = sorted(path.stem for path in HERE.glob("checks_*.py"))
CHECKS = [
    f"{module} {name}"
    for module in MODULES
    for name in re.findall(r"^def ((?:check|refuse)_\w+)", (HERE / f"{module}.py").read_text(), re.MULTILINE)
]


@pytest.fixture(scope="module", autouse=True)
def torch_is_imported() -> None:
    """Once for all: it is slow."""
    importlib.import_module("support.loop.loop_worker")


@cache
def outcomes(file: str) -> dict[str, str]:
    """Of the checks of a file, in a process of its own."""
    from support.loop.loop_worker import run_checks

    found: dict[str, str] = unisono.run(lambda world: run_checks(file), 1, start="fork")[0]
    return found


@pytest.mark.timeout(400)  # the first of a file waits for all of it
@pytest.mark.parametrize("name", CHECKS)
def test_check(name):
    assert outcomes(name.split()[0])[name] == ""
