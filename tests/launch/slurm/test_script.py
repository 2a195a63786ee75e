"""The sbatch script: what stands in it, and what it does, run by a real bash with SLURM's commands replaced by small
scripts that write down how they were called."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import put_command
from unisono.launch.slurm.options import LAUNCHERS, JobOptions
from unisono.launch.slurm.script import Script, run_directory, write_script
from unisono.launch.slurm.steps import Layout, make_step

PYTHON = sys.executable
VARIABLES = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_NUM_NODES": "2", "SLURM_NTASKS": "4"}
VARIABLES |= {"SLURM_CPUS_PER_TASK": "1", "SLURM_ARRAY_JOB_ID": "16", "SLURM_ARRAY_TASK_ID": "3"}
COMMANDS = {
    "srun": 'echo "srun $*"; [ -z "${SAVES:-}" ] || mkdir -p runs/mine-17/snapshots/"$SAVES"; exit "$CODE"',
    "squeue": 'echo "$STATE"',
    "scontrol": 'if [ "$1" = show ]; then printf "n1\\nn2\\n"; else echo "scontrol $*"; fi',
    "scancel": 'echo "scancel $*"',
    "sleep": "exec /bin/sleep 0.02",
    "python": '[ "${*#-P }" = "-m unisono --version" ] && exit "${WITHOUT_UNISONO:-0}"',
}


def made(launcher: str = "srun", words: tuple[str, ...] = ("r2",), **options: object) -> str:
    layout = Layout(2, 2, 1)
    job = JobOptions(nodes=2, job_name="mine", mem="700M", launcher=launcher, **options)
    step = make_step(launcher, layout, list(words), "pmix", "/opt/mpi/mpirun")
    return write_script(Script(job, layout, step, "unisono submit r2", run_directory("mine", "", job.array)))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("unisono.launch.slurm.script.sys.executable", str(tmp_path / "python"))
    for name, body in COMMANDS.items():
        put_command(tmp_path, name, body)
    return tmp_path


def environment(place: Path, code: int, state: str, **more: str) -> dict[str, str]:
    return VARIABLES | {"PATH": f"{place}:{os.environ['PATH']}", "CODE": str(code), "STATE": state} | more


def ended(place: Path, text: str, code: int = 0, state: str = "RUNNING", **more: str) -> tuple[int, str]:
    """The exit code of the script, and what was printed."""
    command, variables = ["bash", "-c", text], environment(place, code, state, **more)
    done = subprocess.run(command, cwd=place, env=variables, capture_output=True, text=True, timeout=30, check=False)
    return done.returncode, done.stdout + done.stderr


def test_directives_say_what_was_asked_for():
    asked = {"time": "30", "partition": "fat", "account": "me", "output": "a b.out", "error": "e.out"}
    lines = made(**asked, sbatch=("--constraint=avx512",), array="0-3%2").splitlines()
    assert [line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH")] == [
        "job-name=mine", "comment=unisono", "nodes=2", "ntasks-per-node=2", "cpus-per-task=1", "mem=700M", "time=30",
        "partition=fat", "account=me", "array=0-3%2", 'output="a b.out"', "error=e.out", "open-mode=append", "requeue",
        "signal=B:USR1@120", "constraint=avx512",
    ]  # fmt: skip
    assert "--output=slurm-%A_%a.out" in made(array="1,2")
    assert "--no-requeue" in made(max_requeues=0)
    assert "--signal" not in made(max_requeues=0)


@pytest.mark.parametrize("launcher", LAUNCHERS[1:])
def test_nothing_that_shellcheck_warns_of(launcher):
    if shutil.which("shellcheck") is None:
        pytest.skip("there is no shellcheck: apt-get install shellcheck")
    text = made(launcher, words=("a file.toml", "--model=$x"), array="0-3", module=("gcc/12",), venv="/a b")
    found = subprocess.run(
        ["shellcheck", "--severity=warning", "-"], input=text, capture_output=True, text=True, timeout=30, check=False
    )
    assert found.stdout == ""


def test_each_launcher_gets_the_tasks_that_it_wants():
    steps = {name: make_step(name, Layout(2, 3, 4), ["r2"], "pmi2", "mpirun") for name in LAUNCHERS[1:]}
    assert {name: (step.tasks_per_node, step.cpus_per_task) for name, step in steps.items()} == {
        "unisono": (1, 12), "srun": (3, 4), "mpirun": (3, 4), "torchrun": (1, 12), "accelerate": (1, 12),
    }  # fmt: skip
    text = {name: " ".join(step.lines) for name, step in steps.items()}
    assert "srun --mpi=pmi2 " in text["srun"]
    for launcher in text.keys() - {"mpirun"}:  # a site may have set it; those that are left would be killed, not save
        assert " --kill-on-bad-exit=0 " in text[launcher]
    assert "mpirun -n 6 " in text["mpirun"]
    assert "--nnodes=2 --nproc-per-node=3" in text["torchrun"]  # it counts ranks of a node, accelerate all of them
    assert "--num_machines=2" in text["accelerate"]
    assert "--num_processes=6" in text["accelerate"]


def test_a_job_shows_where_it_is_and_starts_its_ranks(place):
    code, said = ended(place, made(words=("a file.toml", "--model", "mlp:$x")), python="python")
    assert code == 0
    assert "unisono: job 17 on n[1-2], start 1\nnodes: 2, tasks: 4, cpus per task: 1, ranks: 4\n" in said
    assert "main address: n1:20017, run directory: runs/mine-17\n" in said
    assert "train a file.toml --model mlp:$x --ranks 4 --out=runs/mine-17\n" in said
    assert "scontrol" not in said


def test_modules_are_loaded_before_the_environment_is_activated(place):
    """And before either of them is of use, that unisono can be run is looked at."""
    (place / "my venv/bin").mkdir(parents=True)
    (place / "my venv/bin/activate").write_text("echo activated\n")
    load = 'module() { echo "module $*"; }; export -f module'
    text = made(module=("gcc/12", "mpi"), venv=str(place / "my venv"), setup=("echo set up",))
    code, said = ended(place, f"{load}\n{text}")
    assert code == 0, said
    assert said.startswith("module load gcc/12\nmodule load mpi\nactivated\nset up\nunisono: job 17 on n[1-2]")


def test_names_without_a_value_may_be_used_by_what_sets_the_environment_up(place):
    """Activation scripts of conda do. The rest of the script refuses them."""
    (place / "venv/bin").mkdir(parents=True)
    (place / "venv/bin/activate").write_text('echo "activated $CONDA_BACKUP_CXX"\n')
    text = made(venv=str(place / "venv"), setup=('echo "set up $CONDA_BACKUP_CC"',))
    code, said = ended(place, text)
    assert (code, said.startswith("activated \nset up \nunisono: job 17")) == (0, True), said
    assert ended(place, text.replace("MASTER_ADDR=", "$MISSING MASTER_ADDR="))[0] == 1
    (place / "venv/bin/activate").write_text('echo "activated $CONDA_BACKUP_CXX"; return 3\n')
    code, said = ended(place, text)
    assert (code, "HINT: give one that its nodes have: --venv DIR\n" in said) == (2, True)


def test_a_job_that_cannot_run_unisono_says_so_before_it_starts_anything(place):
    code, said = ended(place, made(), WITHOUT_UNISONO="3")
    assert code == 2
    assert f"unisono: {place}/python cannot run unisono on " in said
    assert "HINT: name an environment that has it: --venv DIR, " in said
    assert "srun" not in said
    code, said = ended(place, made(venv="/nowhere"))
    assert (code, "environment of /nowhere/bin/activate cannot be activated" in said, "HINT: " in said) == (2, 1, 1)


def test_nodes_of_a_job_get_a_secret_that_is_never_shown(place):
    put_command(place, "srun", 'printf %s "$UNISONO_SECRET" >> secrets; echo >> secrets; exit "$CODE"')
    told = [ended(place, made("unisono", setup=("set -x",)), UNISONO_SECRET="of the login node") for _ in range(2)]
    secrets = (place / "secrets").read_text().splitlines()
    assert len(set(secrets)) == 2, "each start has its own"
    assert all(re.fullmatch("[0-9a-f]{64}", secret) for secret in secrets)
    assert all(
        code == 0 and "+ export" in said and secrets[number] not in said for number, (code, said) in enumerate(told)
    )


def test_ranks_get_the_environment_of_the_script_whatever_the_job_was_given(place):
    """sbatch --export=NONE sets this variable to NONE, and srun obeys it."""
    put_command(place, "srun", 'echo "export: $SLURM_EXPORT_ENV"; exit "$CODE"')
    code, said = ended(place, made("unisono"), SLURM_EXPORT_ENV="NONE")
    assert (code, "export: ALL\n" in said) == (0, True)


def test_tasks_of_an_array_have_directories_of_their_own(place):
    """And are requeued alone: the number of one of them is that of the whole array."""
    _, said = ended(place, made(array="0-3"), 75)
    assert "--out=runs/mine-16_3\n" in said
    assert "scontrol requeue 16_3\n" in said
    assert run_directory("mine", "out/x", "0-3") == '"out/x-$SLURM_ARRAY_TASK_ID"'
    assert run_directory("mine", "out/x", "") == '"out/x"'


LAST = {"SLURM_RESTART_COUNT": "99", "SAVES": "000002-000000000009"}


@pytest.mark.parametrize(
    ("code", "state", "more", "requeued", "memory"),
    [
        pytest.param(75, "RUNNING", {}, True, True, id="asked to end"),
        pytest.param(75, "COMPLETING", {}, False, False, id="cancelled: SLURM would start it again"),
        pytest.param(75, "", {}, False, False, id="unknown"),
        pytest.param(75, "RUNNING", LAST, True, True, id="for the last time"),
        pytest.param(75, "RUNNING", {"SLURM_RESTART_COUNT": "100"}, False, True, id="often enough"),
        pytest.param(75, "RUNNING", {"SLURM_RESTART_COUNT": "1"}, False, True, id="no further than before"),
        pytest.param(0, "RUNNING", {}, False, False, id="finished"),
        pytest.param(2, "RUNNING", {}, False, False, id="a mistake"),
    ],
)
def test_a_job_whose_ranks_were_asked_to_end_is_queued_again(place, code, state, more, requeued, memory):
    """Ranks that leave unasked may have lost one for memory: that is said, too."""
    found, said = ended(place, made(), code, state, **more)
    assert found == code
    assert ("scontrol requeue 17\n" in said) == requeued
    never = ended(place, made(max_requeues=0), code, state, **more)[1]
    assert "requeue" not in never
    for text in (said, never):
        assert ("says Killed: most often that is for memory\nHINT: this job asked for 700M" in text) == memory


def test_a_job_that_fails_where_it_failed_before_is_left(place):
    """A snapshot of the same position is none of a run that got further."""
    (place / "runs/mine-17/snapshots/000001-000000000007").mkdir(parents=True)
    again = {"SLURM_RESTART_COUNT": "1"}
    code, said = ended(place, made(), 75, **again, SAVES="000002-000000000007")
    assert (code, "scontrol requeue" in said) == (75, False)
    assert "job 17 got no further since its last start, and is not queued again" in said
    assert "scontrol requeue 17\n" in ended(place, made(), 75, **again, SAVES="000003-000000000008")[1]


def test_a_requeue_that_slurm_refuses_is_said_and_keeps_the_exit_code(place):
    (place / "scontrol").write_text('#!/bin/bash\n[ "$1" = show ] && echo n1 || exit 3\n')
    code, said = ended(place, made(), 75)
    assert (code, "SLURM refused that; to go on: unisono submit --resume=runs/mine-17" in said) == (75, True)


def test_a_killed_rank_is_put_down_to_memory(place):
    code, said = ended(place, made(), 137)
    assert code == 137
    assert "a rank was killed (SIGKILL), most often for memory" in said
    assert "HINT: this job asked for 700M a node" in said


RANKS = """#!{python}
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print("ready", flush=True)
print("ranks were asked" if signal.sigtimedwait([signal.SIGUSR1], 30) else "never", flush=True)
sys.exit(int(os.environ["CODE"]))
"""


def test_a_warning_that_comes_while_the_launcher_is_being_started_reaches_the_ranks(place):
    (place / "srun").write_text(RANKS.format(python=PYTHON).replace('print("ready"', "print(open('up', 'w')"))
    put_command(place, "sleep", "until [ -e up ]; do /bin/sleep 0.02; done")
    text = made().replace("launched=$!", "kill -USR1 $$; launched=$!")
    assert text != made()
    code, said = ended(place, text, 75)
    assert code == 75
    assert "ranks were asked\n" in said
    assert "scontrol requeue 17\n" in said


@pytest.mark.parametrize(("launcher", "asked_by"), [("srun", ""), ("torchrun", "scancel --signal=TERM 17\n")])
@pytest.mark.parametrize("code", [75, 1])
def test_the_warning_before_the_time_limit_reaches_the_ranks(place, launcher, asked_by, code):
    """An agent of torch's ends with a code of its own: it counts that its ranks were asked."""
    (place / "srun").write_text(RANKS.format(python=PYTHON))
    (place / "scancel").write_text('#!/bin/bash\necho "scancel $*"\nkill -USR1 "$LAUNCHED"\n')
    text = made(launcher).replace("scancel --signal", 'LAUNCHED="$launched" scancel --signal')
    with subprocess.Popen(
        ["bash", "-c", text], env=environment(place, code, "RUNNING"), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    ) as job:  # fmt: skip
        while job.stdout.readline() != "ready\n":
            assert job.poll() is None
        job.send_signal(signal.SIGTERM)  # comes with a cancellation: the ranks are left to end by themselves
        job.send_signal(signal.SIGUSR1)
        said, _ = job.communicate(timeout=60)
    assert job.returncode == code
    assert f"{asked_by}ranks were asked\n" in said
    assert "for memory" not in said, "they were asked: nobody was lost"
    assert "scontrol requeue 17\n" in said
