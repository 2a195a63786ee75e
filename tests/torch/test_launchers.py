"""The same script, unchanged, under mpirun: it finds its rank, and `unisono launch` is one rank or starts some."""

import json
import subprocess
import sys

import pytest

from support.needs import needs_mpi4py
from unisono.environment.os_environ import mpi_environment
from unisono.launch.launcher_commands import mpirun

pytestmark = needs_mpi4py

SCRIPT = """
import json, os, torch, torch.distributed as dist
dist.init_process_group("unisono")
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
names = [os.environ.get(name) for name in ("LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR")]
print(json.dumps([dist.get_rank(), dist.get_world_size(), float(total), *names]), flush=True)
dist.destroy_process_group()
"""
LAUNCH = [sys.executable, "-P", "-m", "unisono", "launch"]


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return str(path)


def run(ranks, command):
    return subprocess.run(
        mpirun(ranks, command), env=mpi_environment(), capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.parametrize(
    ("ranks", "start"),
    [(3, [sys.executable]), (3, LAUNCH), (1, [*LAUNCH, "--ranks", "3"])],
    ids=["the script", "unisono launch as a rank", "unisono launch --ranks 3 once"],
)
def test_under_mpirun(script, ranks, start):
    ended = run(ranks, [*start, script])
    assert ended.returncode == 0, ended.stderr[-2000:]
    found = sorted(json.loads(line) for line in ended.stdout.splitlines() if line.startswith("["))
    assert found == [[rank, 3, 6.0, str(rank), "3", "127.0.0.1"] for rank in range(3)]


def test_ranks_that_are_each_to_start_more_are_refused(script):
    ended = run(2, [*LAUNCH, "--ranks", "2", script])
    assert ended.returncode == 2
    assert "Open MPI has started 2 ranks, 2 of them on this machine, and each is to start more" in ended.stderr
    assert "HINT: leave these options out" in ended.stderr
