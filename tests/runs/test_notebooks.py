"""`unisono.run` and `unisono.train` in the cells of a notebook, in a real kernel."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from support.paths import worker

WORKER = worker("notebook")[1]
THREADS = """
import torch
torch.set_num_threads(2)
_ = torch.ones(600, 600) @ torch.ones(600, 600)
from unisono.launch.local import torch_threads_running
torch_threads_running()
"""
CELL_FUNCTIONS = """
factor = 3
def scaled(number): return factor * number
def work(world):
    x = torch.ones(600, 600, requires_grad=True)
    (x @ x).sum().backward()
    return scaled(world.rank) + float(x.grad[0, 0])
"""
SMALL = "model='mlp:8', data='synthetic:classes=4,rows=64,features=8,test_rows=32', batch_size=16"
INTERRUPT = """
import os, signal, threading, time
from pathlib import Path
def interrupt():
    while not Path("run/metrics.jsonl").exists(): time.sleep(0.05)
    os.killpg(0, signal.SIGINT)                     # as Jupyter does
threading.Thread(target=interrupt).start()
"""

pytestmark = pytest.mark.skipif(
    not all(map(find_spec, ("nbclient", "ipykernel", "cloudpickle", "torch"))), reason="there is no kernel or no torch"
)


def shown(tmp_path: Path, *cells: str) -> list[list[dict[str, Any]]]:
    """What each cell put out."""
    ended = subprocess.run(
        [sys.executable, WORKER], input=json.dumps(cells), capture_output=True, text=True, timeout=110, check=False,
        cwd=tmp_path,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def text(outputs: list[dict[str, Any]]) -> str:
    """Lines and values that a cell showed."""
    return "".join(out.get("text") or out.get("data", {}).get("text/plain") or str(out) for out in outputs)


def test_cells_before_torch_has_threads_and_after(tmp_path):
    first, before, threads, _, after, trained, html, plot = shown(
        tmp_path,
        "import unisono\nunisono.run(lambda world: world.rank, ranks=2)",
        f"unisono.train({SMALL}, epochs=2, quiet=True).summary['weights_sha256']",
        THREADS,
        CELL_FUNCTIONS,
        "unisono.run(work, ranks=2)",
        f"run = unisono.train({SMALL}, epochs=2); run.summary['weights_sha256']",
        "run",
        "run.plot()",
    )
    assert (text(first), text(threads), text(after)) == ("[0, 1]", "True", "[1200.0, 1203.0]")
    assert "epoch 2/2" in text(trained)
    assert text(trained).endswith(text(before))  # the same bits, in a process of its own
    assert "test accuracy" in html[-1]["data"]["text/html"]
    assert "image/png" in plot[-1]["data"]


def test_interrupting_a_cell_leaves_a_snapshot_to_go_on_from(tmp_path):
    _, _, _, halted, more = shown(
        tmp_path,
        "import unisono",
        THREADS,
        INTERRUPT,
        f"unisono.train({SMALL}, epochs=10**6, out='run')",
        "epochs = unisono.load('run').metrics['epoch'][-1] + 1\n"
        "unisono.train(resume='run', epochs=int(epochs), allow_change='epochs').summary['status']",
    )
    assert halted[-1]["ename"] == "Halted"
    assert "go on with unisono train --resume run" in halted[-1]["evalue"]
    assert text(more).endswith("'finished'")
