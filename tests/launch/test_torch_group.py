"""torch's default group over any communicator: by a file, by TCP; and who gets which device."""

import subprocess
import sys

import pytest

from unisono.errors import UserError
from unisono.launch.torch_group import device_of

SCRIPT = """
import os
import tempfile
from pathlib import Path
import numpy as np
import torch.distributed as dist
import torch
import unisono
from unisono.launch.torch_group import default_group, meet

def by_file(world):
    before = dict(os.environ)
    with default_group(world.comm, "cpu", 1) as device:
        value = torch.tensor([float(world.rank + 1)])
        dist.all_reduce(value)
        inside = os.environ["RANK"], os.environ["LOCAL_WORLD_SIZE"]
    return [float(value), str(device), *inside, os.environ == before, dist.is_initialized()]

def by_tcp(world):
    store, address = meet(world.comm, "unused", one_node=False)
    store.set(str(world.rank), "here")
    world.comm.barrier()
    found = store.get(str((world.rank + 1) % world.size)).decode()
    world.comm.barrier()
    return [found, address]

with tempfile.TemporaryDirectory() as folder:
    tempfile.tempdir = folder
    for ranks in (1, 3):
        for rank, found in enumerate(unisono.run(by_file, ranks, start="fork", timeout_s=30)):
            assert found == [ranks * (ranks + 1) / 2, "cpu", str(rank), str(ranks), True, False], found
    assert not any(Path(folder).iterdir())
found = unisono.run(by_tcp, 2, start="fork", timeout_s=30)
assert found[0] == found[1] and found[0][0] == "here" and ":" in found[0][1], found
"""


def test_the_group_is_there_and_nothing_is_left_of_it():
    command = [sys.executable, "-W", "error", "-c", SCRIPT]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr


def test_the_local_rank_picks_the_device():
    assert [device_of("cuda", rank, 2) for rank in range(2)] == ["cuda:0", "cuda:1"]
    assert device_of("cpu", 5, 0) == "cpu"
    with pytest.raises(UserError, match="3 ranks or more, and torch sees 2 GPUs\nHINT: one process per GPU: start 2"):
        device_of("cuda", 2, 2)
    with pytest.raises(UserError, match="use --device cpu"):
        device_of("cuda", 0, 0)
