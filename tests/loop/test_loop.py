"""The user's own loop: the questions are in checks_*.py, which run once, in a few processes of their own."""

import json
import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from unisono.launch.environments import child_environment

pytestmark = pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")

HERE = Path(__file__).parent
PARTS = 5
MODULES = sorted(path.stem for path in HERE.glob("checks_*.py"))
CHECKS = [
    f"{module} {name}"
    for module in MODULES
    for name in re.findall(r"^def ((?:check|refuse)_\w+)", (HERE / f"{module}.py").read_text(), re.MULTILINE)
]


@cache
def outcomes(part: int) -> dict[str, str]:
    """Of every fifth file: torch is slow to import, and one process for all would be a long test."""
    command = [sys.executable, "-W", "error", str(HERE / "worker.py"), *MODULES[part::PARTS]]
    environment = child_environment(threads=1)
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, str] = json.loads(ended.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", CHECKS)
def test_check(name):
    assert outcomes(MODULES.index(name.split()[0]) % PARTS)[name] == ""
