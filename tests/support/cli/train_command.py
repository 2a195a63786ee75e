"""`unisono` as a process of its own, and what `unisono train` left.

started("scale", "--dry-run", cwd=tmp_path).returncode
ended = train("--epochs", "2", "--out", "run", cwd=tmp_path); summary_of(tmp_path / "run")["status"]
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

UNISONO = [sys.executable, "-m", "unisono"]
COMMAND = [*UNISONO, "train"]


def started(*words: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """variables: of its environment, besides ours."""
    return _ended([*UNISONO, *words], cwd, os.environ | variables)


def train(
    *arguments: str, cwd: Path, command: list[str] = COMMAND, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """command: with a launcher before it, say."""
    return _ended([*command, *arguments], cwd, environment)


def _ended(
    command: list[str], cwd: Path | None, environment: Mapping[str, str] | None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=110, check=False)


def summary_of(path: Path) -> dict[str, Any]:
    return json.loads((path / "summary.json").read_text())
