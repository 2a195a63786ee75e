"""Several machines by hand, all of them this one: what the first one tells at the end."""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

import unisono
from support.ports import free_port
from unisono.report.html.document import document

pytest.importorskip("torch")
TRAIN = [sys.executable, "-m", "unisono", "train", "--epochs", "1", "--ranks-per-node", "1", "--num-nodes", "2"]


def trained(path: Path) -> list[str]:
    """What each of two machines said."""
    where = ["--main-address", "127.0.0.1", "--main-port", str(free_port())]
    with ExitStack() as stack:
        machines = []
        for node in range(2):
            command = [*TRAIN, *where, "--node-id", str(node), *(["--out", str(path)] if node == 0 else [])]
            one = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            machines.append(stack.enter_context(one))
            stack.callback(one.kill)
        said = [one.communicate(timeout=100)[0] for one in machines]
    assert [one.returncode for one in machines] == [0, 0], said
    return said


def test_energy_that_is_not_known_is_said_once(tmp_path):
    first, other = trained(tmp_path / "run")
    (line,) = [line for line in first.splitlines() if "Energy" in line]
    assert line.startswith("Energy: not known (with --num-nodes that of other machines is not gathered;")
    assert "Energy" not in other
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["energy_j"], summary["energy_source"]) == (None, "none")
    assert line == f"Energy: not known ({summary['energy_note']})."
    assert document([unisono.load(tmp_path / "run")]).count("Energy: not known (with --num-nodes") == 1
