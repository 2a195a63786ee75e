"""Whole runs of the torch engine in forked ranks: same bits on any number of them."""

import subprocess
import sys

import pytest

import unisono
from support.models.rank_outcomes import run_all

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


ADDRESSES = """
import os
from torch import nn

class Net(nn.Module):
    def __init__(self, shape, outputs):
        super().__init__()
        self.first, self.norm, self.out = nn.Linear(shape[0], 7), nn.BatchNorm1d(7), nn.Linear(7, outputs)

    def forward(self, x):
        if self.training and len(x) == 5:
            tensors = [x, *self.parameters(), *self.buffers()]
            with open(f"{__file__}.{os.getpid()}", "a") as log:
                print(*[tensor.data_ptr() % 64 for tensor in tensors], file=log)
        return self.out(self.norm(self.first(x)))
"""
"""Writes down where the tensors lie that kernels see."""

BN = {"model": "bn-mlp:24", "engine": "torch", "dropout": 0.4, "batch_size": 300}
ODD = {"engine": "torch", "model": "mlp:64,32", "data": "synthetic:classes=5,rows=301,features=13", "batch_size": 24}
SEEN = {"model": "seen", "data": "synthetic:classes=3,rows=47,features=13", "batch_size": 20, "shards": 4}
RUNS = {
    "13 features": (ODD, (1, 2, 3, 4, 8)),
    "30 features, linear": (
        {"engine": "torch", "model": "linear", "data": "synthetic:regression,rows=301,features=30", "batch_size": 50},
        (1, 2, 3, 8),
    ),
    "addresses": (SEEN, (1, 3, 4)),
    "addresses, replicas": (SEEN | {"strategy": "local", "sync_every": 2, "local_after": 0}, (1, 3)),
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
    seen = path.with_name("seen.py")
    seen.write_text(ADDRESSES)
    models = {"": f"{path}:Net", "seen": f"{seen}:Net"}
    runs = [({"epochs": 1} | options, ranks) for options, ranks in RUNS.values()]
    runs = [(run | {"model": models.get(model := run.get("model", ""), model)}, ranks) for run, ranks in runs]
    (found,) = unisono.run(lambda world: run_all(runs), 1, start="fork")
    logs = [log.read_text().splitlines() for log in seen.parent.glob("seen.py.*")]
    return dict(zip(RUNS, found, strict=True)) | {"logs": logs}


@pytest.mark.parametrize("name", RUNS)
def test_bits_and_scores_do_not_depend_on_the_ranks(outcomes, name):
    for outcome in outcomes[name]:
        assert outcome == outcomes[name][0]
        assert outcome["engine"] == "torch"
        assert not outcome["threads"], "the parent of the ranks has threads of torch's"
        assert len(outcome["weights"]) == 1


def test_kernels_see_the_same_addresses_modulo_64_on_every_rank(outcomes):
    logs = outcomes["logs"]
    assert len(logs) >= 1 + 3 + 4 + 1 + 3
    (seen,) = {line for log in logs for line in log}
    assert seen.startswith("0 0 "), "samples, and the first parameter"


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
    command, *_, one, other = (tmp_path / "built").read_text().split()
    assert len({command, one, other}) == 3, "the last two are the ranks'"
