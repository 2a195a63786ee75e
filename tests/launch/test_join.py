"""`unisono.join` in ranks that torchrun or mpirun started on one machine: shared memory, by itself."""

import json
import signal
import subprocess
import sys

import pytest

from unisono.environment.os_environ import mpi_environment, script_environment
from unisono.launch.launcher_commands import mpirun
from unisono.launch.script_options import ScriptOptions, free_port

JOINED = """
import json, os, signal, sys, time
import numpy as np
import unisono

world = unisono.join()
numbers = np.full(1000, world.rank + 1.0)
world.comm.all_reduce(numbers)
print(json.dumps([world.comm.transport, world.size, numbers[0]]), flush=True)
if "die" in sys.argv and world.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if "die" in sys.argv:
    begun = time.monotonic()
    try:
        world.comm.barrier()
    except unisono.RankLost as error:
        print(json.dumps([list(error.ranks), time.monotonic() - begun < 20]), flush=True)
world.close()
"""


def output(command: list[str], environment=None) -> list:
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=environment)
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("[")]


RAISED = """
import sys, time
import numpy as np
import unisono

with unisono.join(timeout_s=100) as world:
    comm = world.comm.split(0) if "split" in sys.argv else world.comm
    comm.barrier()
    if world.rank == 1:
        raise ValueError("the cause")
    comm.all_reduce(np.ones(3))
"""


@pytest.mark.parametrize("more", [[], ["split"]])
def test_a_rank_that_raises_under_mpirun_ends_the_job_before_the_time_out(tmp_path, more):
    path = tmp_path / "raised.py"
    path.write_text(RAISED)
    command = mpirun(2, [sys.executable, str(path), *more])
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=80, check=False, env=mpi_environment()
    )  # within the 100 s
    assert ended.returncode != 0
    assert "ValueError: the cause" in ended.stderr


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "joined.py"
    path.write_text(JOINED)
    return str(path)


def test_under_torchruns_variables(script):
    command = [sys.executable, "-P", "-m", "unisono", "launch", "--ranks", "3", script]
    assert output(command) == [["shm", 3, 6.0]] * 3


def test_under_mpirun(script):
    assert output(mpirun(2, [sys.executable, script]), mpi_environment()) == [["shm", 2, 3.0]] * 2


def test_a_rank_that_is_killed_is_named_at_once(script):
    """Without a launcher around, which would end the others."""
    placements = ScriptOptions(ranks=2).placements(free_port())
    ranks = [
        subprocess.Popen(
            [sys.executable, script, "die"], env=script_environment(placement, 1, replace_gloo=False),
            stdout=subprocess.PIPE, text=True,
        )
        for placement in placements
    ]  # fmt: skip
    said = [rank.communicate(timeout=100)[0] for rank in ranks]
    assert said[0].splitlines()[1:] == ["[[1], true]"]
    assert ranks[1].returncode == -signal.SIGKILL
