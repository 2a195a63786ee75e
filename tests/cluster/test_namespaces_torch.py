"""Unchanged torch scripts on several machines: the bits of one machine on any layout, and a machine that is lost."""

import json
import os
import sys

import pytest

from support.cluster.namespaces import REASON, Net, ends
from unisono.environment.os_environ import child_environment

pytestmark = [pytest.mark.skipif(bool(REASON), reason=REASON), pytest.mark.timeout(300)]
"""Ten imports of torch on two cores may take a minute beside other tests."""

SCRIPT = """
import hashlib, json, os, signal, sys
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("unisono")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(13, 31), nn.BatchNorm1d(31), nn.Linear(31, 1031)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(4):
    if "die" in sys.argv and step == 2 and rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad()
    torch.manual_seed(100 * step + rank)
    model(torch.randn(7, 13)).square().mean().backward()
    optimizer.step()
if rank == 0:
    values = b"".join(value.detach().numpy().tobytes() for value in model.parameters())
    print(json.dumps([dist.get_world_size(), hashlib.sha256(values).hexdigest()]), flush=True)
dist.destroy_process_group()
"""


def command(machines: int, node: int, script: str, *more: str) -> list[str]:
    where = [] if machines == 1 else ["--num-nodes", str(machines), "--node-id", str(node)]
    where += [] if machines == 1 else ["--main-address", Net.address(0)]
    return [sys.executable, "-P", "-m", "unisono", "launch", "--virtual-ranks", "4", *where, script, *more]


def on(net: Net, machines: int, script: str, folder, *more: str) -> list[tuple[int, str, str]]:
    environment = child_environment(threads=None, environ=os.environ)
    jobs = [net.start(node, command(machines, node, script, *more), environment, folder) for node in range(machines)]
    return ends(jobs)


def test_virtual_ranks_give_the_same_bits_on_one_two_and_four_machines(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    found = {}
    with Net(4) as net:
        for machines in (1, 2, 4):
            ended = on(net, machines, str(script), tmp_path)
            assert [code for code, _, _ in ended] == [0] * machines, ended
            found[machines] = json.loads(ended[0][1].splitlines()[-1])
    assert found[1] == found[2] == found[4]
    assert found[1][0] == 4


def test_a_rank_that_dies_on_one_machine_is_named_on_the_other(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    with Net(2) as net:
        first, second = on(net, 2, str(script), tmp_path, "die")
    assert first[0] == second[0] == 1
    assert "rank 3: was killed by SIGKILL" in second[2]
    assert "rank 3 is gone" in first[2]
