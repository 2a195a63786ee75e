"""Whole runs of the torch engine in forked ranks: same bits on any number of them."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from ranks_worker import run_all

import unisono

OWN = """
import torch
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self, shape, outputs):
        super().__init__()
        self.convolution = nn.Conv2d(shape[0], 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.fixed = nn.Linear(4 * 16, 24).requires_grad_(False)
        self.middle = nn.Linear(24, 24)
        self.again = self.middle
        self.idle = nn.Parameter(torch.randn(3))
        self.out = nn.Linear(24, outputs)
        self.register_buffer("table", torch.randn(24))

    def forward(self, x):
        x = F.max_pool2d(torch.relu(self.norm(self.convolution(x))), 2).flatten(1)
        x = F.dropout(torch.relu(self.middle(self.fixed(x) + self.table)), 0.3, self.training)
        return self.out(torch.relu(self.again(x)))
"""


BN = {"model": "bn-mlp:24", "engine": "torch", "dropout": 0.4, "batch_size": 300}
RUNS = {
    "own": ({}, (1, 2, 3, 4, 8)),
    "own, bf16, clipped": ({"precision": "bf16", "clip": 1.0, "optimizer": "momentum", "lr": 0.05}, (1, 3)),
    "own, replicas": ({"strategy": "local", "sync_every": 3, "local_after": 0}, (1, 2, 4, 8)),
    "bn-mlp": (BN, (1, 3)),
    "bn-mlp, other seed": (BN | {"seed": 1}, (1,)),
    "bn-mlp, fp16": (BN | {"precision": "fp16"}, (1, 2)),
    "bn-mlp, longer": ({"model": "bn-mlp:32", "engine": "torch", "epochs": 5}, (2,)),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict]]:
    """Of all `RUNS`, one after the other in a process of its own."""
    path = tmp_path_factory.mktemp("own") / "mine.py"
    path.write_text(OWN)
    runs = [({"model": f"{path}:Net", "epochs": 1} | options, ranks) for options, ranks in RUNS.values()]
    (found,) = unisono.run(lambda world: run_all(runs), 1, start="fork")
    return dict(zip(RUNS, found, strict=True))


@pytest.mark.parametrize("name", RUNS)
def test_bits_and_scores_do_not_depend_on_the_ranks(outcomes, name):
    for outcome in outcomes[name]:
        assert outcome == outcomes[name][0]
        assert outcome["engine"] == "torch"
        assert not outcome["threads"], "the parent of the ranks has threads of torch's"
        assert len(outcome["weights"]) == 1


def test_the_engine_learns(outcomes):
    assert outcomes["bn-mlp, longer"][0]["scores"][3] > 0.9


def test_seeds_and_precisions_differ(outcomes):
    """Else the tests above could not fail."""
    names = ("bn-mlp", "bn-mlp, other seed", "bn-mlp, fp16")
    assert len({outcomes[name][0]["weights"][0] for name in names}) == 3


def test_each_rank_builds_a_module_of_the_users_itself(tmp_path, monkeypatch):
    """What it has opened or started (a file's offset, a pool's threads) would be common to forked ranks, or gone."""
    monkeypatch.setenv("BUILT", str(tmp_path / "built"))
    code = "import os\ndef net(shape, outputs):\n    with open(os.environ['BUILT'], 'a') as file:\n"
    code += "        file.write(f'{os.getpid()}\\n')\n    return Net(shape, outputs)\n"
    (tmp_path / "mine.py").write_text(OWN + code)
    train = [sys.executable, "-m", "unisono", "train", "--model", "mine.py:net", "--epochs", "1", "--ranks", "2"]
    subprocess.run(train, cwd=tmp_path, check=True, capture_output=True, timeout=90)
    assert len(set((tmp_path / "built").read_text().split())) == 3
