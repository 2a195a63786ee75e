"""The networks of the torch engine: who may build them, and where."""

import subprocess
import sys

import pytest

from support.needs import needs_torch
from unisono.environment.os_environ import child_environment
from unisono.errors import UserError
from unisono.models.torch import nets

BUILT_THEN_FORKED = """
import torch, unisono
from unisono.launch.local import torch_threads_running
from unisono.models.torch.nets import build

BIG = [
    ("linear", "", (784,), 1000), ("mlp", "1000,1000", (28, 28), 10), ("bn-mlp", "1000", (784,), 10),
    ("cnn", "64,128", (28, 28), 10), ("wideresnet", "2", (28, 28), 10),
    ("gpt", "layers=2,heads=4,width=256", (256,), 500),
]  # each with arrays of more than 32,768 elements, for which torch would use threads

def work(world):
    torch.manual_seed(world.size)
    losses = []
    for (name, *_), net in zip(BIG, NETS):
        x = torch.arange(64).reshape(1, 64) if name == "gpt" else torch.ones(2, 1, 28, 28)
        loss = net(x).square().mean()
        loss.backward()
        losses.append(loss.item())
    return losses

if __name__ == "__main__":
    torch.manual_seed(0)
    NETS = [build(*given) for given in BIG]
    assert not torch_threads_running()
    one, two = unisono.run(work, 2, start="fork")
    assert one == two, (one, two)
    NETS[1](torch.ones(2, 1, 28, 28)).square().mean().backward()
    assert torch_threads_running()
    print("done")
"""


@needs_torch
def test_building_starts_no_threads_so_ranks_can_be_forked(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(BUILT_THEN_FORKED)
    environment = child_environment(threads=2)
    command = [sys.executable, "-W", "error", str(script)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr


def test_names_can_be_read_without_torch():
    code = "import sys; from unisono.models.torch.nets import NETWORKS, FOR_TEXT; print('torch' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "False\n"


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(nets, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"model 'cnn:8' needs the package torch.*\nHINT: pip install -c "):
        nets.build("cnn", "8", (28, 28), 10)
    assert set(nets.FOR_TEXT) <= set(nets.NETWORKS)
