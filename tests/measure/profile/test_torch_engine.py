"""The torch engine looked into: the questions are in torch_checks.py, which run in a process of their own.

torch's profiler starts a thread, and a process that has one cannot fork ranks, as other tests do.
"""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest


@pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")
def test_checks():
    checks = Path(__file__).with_name("torch_checks.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(checks)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert ended.returncode == 0, ended.stdout
    assert "3 passed" in ended.stdout
