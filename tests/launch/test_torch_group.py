"""torch's default group over any communicator: by a file, by TCP; and who gets which device."""

import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

from unisono.comm.serial import SerialCommunicator
from unisono.errors import UserError
from unisono.launch.torch_group import default_group

SCRIPT = """
import os
import tempfile
from pathlib import Path
import numpy as np
import psutil
import torch.distributed as dist
import torch
import unisono
from unisono.comm.topology.addresses import interface_of
from unisono.launch.torch_group import _connect, default_group, meet

def by_file(world):
    before = dict(os.environ)
    with default_group(world.comm, "cpu", 1) as device:
        value = torch.tensor([float(world.rank + 1)])
        dist.all_reduce(value)
        inside = os.environ["RANK"], os.environ["LOCAL_WORLD_SIZE"]
        doors = [entry.laddr.ip for entry in psutil.Process().net_connections("tcp") if entry.status == "LISTEN"]
        assert set(doors) == {"127.0.0.1"}, doors
        assert interface_of("127.0.0.1") == os.environ["GLOO_SOCKET_IFNAME"]
    return [float(value), str(device), *inside, os.environ == before, dist.is_initialized()]

def by_tcp(world):
    store, address, own = meet(world.comm, "unused", one_node=False, near=True)
    store.set(str(world.rank), "here")
    world.comm.barrier()
    found = store.get(str((world.rank + 1) % world.size)).decode()
    _connect(world.comm, "gloo", store)
    value = torch.tensor([float(world.rank + 1)])
    dist.all_reduce(value)
    dist.destroy_process_group()
    assert float(value) == 3
    world.comm.barrier()
    return [found, address, own]

def broken(world):
    def fail(*given):
        raise RuntimeError("a rank is gone")

    world.comm.all_reduce = fail  # it tells how connecting went
    try:
        with default_group(world.comm, "cpu", 1):
            return "entered"
    except RuntimeError as error:
        return [str(error), dist.is_initialized()]

def unconnected(world):
    # Rank 1 cannot: the other gives up in its time, and not after five times 30 s.
    world.comm.join_s = 1.0

    def refuse(*given, **more):
        raise RuntimeError("Connect timeout\\nmore")

    if world.rank == 1:
        dist.init_process_group = refuse
    try:
        with default_group(world.comm, "cpu", 1):
            return "entered"
    except unisono.UserError as error:
        return [str(error), dist.is_initialized()]

def unheard(world):
    world.comm.address = "192.0.2.13"
    try:
        meet(world.comm, "unused", one_node=False, near=True)
    except unisono.UserError as error:
        return str(error)

for told in unisono.run(unheard, 2, start="fork", timeout_s=30):
    assert told.startswith("rank 0 cannot listen for torch's ranks: Cannot assign requested address"), told
    assert "192.0.2.13" in told and "--interface" in told, told
with tempfile.TemporaryDirectory() as folder:
    tempfile.tempdir = folder
    for ranks in (1, 3):
        for rank, found in enumerate(unisono.run(by_file, ranks, start="fork", timeout_s=30)):
            assert found == [ranks * (ranks + 1) / 2, "cpu", str(rank), str(ranks), True, False], found
    assert unisono.run(broken, 2, start="fork", timeout_s=30) == [["a rank is gone", False]] * 2
    found = unisono.run(unconnected, 2, start="fork", timeout_s=30)
    assert found[0] == found[1] and not found[0][1], found
    assert found[0][0].startswith("rank 0: within 1 s (--join-timeout) there was no connection"), found
    assert not any(Path(folder).iterdir())
found = unisono.run(by_tcp, 2, start="fork", timeout_s=30)
assert found[0] == found[1] and found[0][0] == "here" and ":" in found[0][1], found
"""


def test_the_group_is_there_and_nothing_is_left_of_it():
    command = [sys.executable, "-W", "error", "-c", SCRIPT]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("gpus", [1, 2])
def test_on_gpus_the_device_is_set_before_anything_else_of_cuda_and_nccl_sums(monkeypatch, gpus):
    """Without a GPU: torch's calls are replaced, and only their order and arguments are looked at."""
    calls = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: calls.append(f"set {device}"))
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **given: calls.append(f"init {backend}"))
    monkeypatch.setattr(dist, "destroy_process_group", lambda: calls.append("destroy"))
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    with default_group(SerialCommunicator(), "cuda", 1) as device:
        calls.append(str(device))
    assert calls == ["set cuda:0", "init nccl", "cuda:0", "destroy"]


def test_too_few_gpus_are_told_before_any_other_call(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: pytest.fail("there is none"))
    with pytest.raises(UserError, match="torch sees 0 GPUs"), default_group(SerialCommunicator(), "cuda", 1):
        pytest.fail("there is no group")
