"""`unisono train` as a process of its own, and what it left.

ended = train("--epochs", "2", "--out", "run", cwd=tmp_path); summary_of(tmp_path / "run")["status"]
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-m", "unisono", "train"]


def train(
    *arguments: str, cwd: Path, command: list[str] = COMMAND, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """command: with a launcher before it, say."""
    return subprocess.run(
        [*command, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=100, check=False
    )


def summary_of(path: Path) -> dict[str, Any]:
    return json.loads((path / "summary.json").read_text())
