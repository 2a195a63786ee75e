"""50 steps of each optimizer end where torch.optim ends."""

import json
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from torch_worker import CASES

from unisono.launch.environments import child_environment

WORKER = str(Path(__file__).parent / "torch_worker.py")


@cache
def differences() -> dict[str, float]:
    environment = child_environment(threads=1)
    command = [sys.executable, WORKER]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, float] = json.loads(ended.stdout)
    return found


@pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")
@pytest.mark.parametrize("name", CASES)
def test_ends_where_torch_ends(name):
    assert differences()[name] < 2e-6
