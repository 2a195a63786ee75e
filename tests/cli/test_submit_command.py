"""`unisono submit`, `jobs` and `cancel` as a user meets them without a cluster; with one: tests/cluster."""

import resource
import sys
from dataclasses import replace

import pytest

from support.cli.forked_command import forked
from support.commands import put_command
from unisono.cli.common.submission import Submission
from unisono.cli.main import app
from unisono.errors import UnisonoError
from unisono.launch.slurm.options import JobOptions


@pytest.fixture(autouse=True)
def without_slurm(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))


def script(source: str = "", job: JobOptions | None = None, **overrides: object) -> str:
    return Submission(source, overrides, job or JobOptions(mem="1G")).script()


def test_without_slurm_the_script_is_written_and_that_is_said(tmp_path):
    ended = forked("submit", "--epochs", "2", "--job-name", "mine", "--output", "logs/%j.out", cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stdout == "Written: mine.sbatch\n"
    assert "no SLURM on this machine" in ended.stderr
    assert "HINT: on a login node: sbatch mine.sbatch" in ended.stderr
    text = (tmp_path / "mine.sbatch").read_text()
    assert "# Made by: unisono submit --epochs 2 --job-name mine" in text
    assert "-m unisono train --epochs 2 --ranks-per-node 2" in text
    assert (tmp_path / "logs").is_dir()
    assert forked("submit", "--mem", "1G", "--job-name", "mine", cwd=tmp_path).returncode == 2  # replaces its own


@pytest.mark.parametrize("sinfo", ["echo 'Unable to contact slurm controller' >&2; exit 1", "exec /bin/sleep 30"])
def test_a_cluster_that_does_not_answer_costs_no_script(sinfo, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("unisono.launch.slurm.client.ASK_S", 0.2)
    monkeypatch.chdir(tmp_path)
    put_command(tmp_path, "sbatch", "exit 3")
    put_command(tmp_path, "sinfo", sinfo)
    with pytest.raises(UnisonoError) as caught:
        app(["submit", "--mem", "1G"], exit_on_error=False, result_action="return_value")
    assert caught.value.exit_code == 1
    told = str(caught.value)
    assert told.startswith("SLURM does not answer here: sinfo")
    assert "the script was written, nothing was submitted" in told
    assert told.endswith("later: sbatch unisono.sbatch")
    assert (tmp_path / "unisono.sbatch").exists()
    assert capsys.readouterr().out == "Written: unisono.sbatch\n"


def test_an_environment_that_is_not_here_is_said_and_one_that_is_is_not(tmp_path):
    ended = forked("submit", "--mem", "1G", "--venv", "/nonexist", "--dry-run", cwd=tmp_path)
    assert ended.returncode == 0
    assert ended.stdout.startswith("#!/bin/bash\n")
    assert "Note: there is no /nonexist/bin/activate here (--venv)" in ended.stderr
    (tmp_path / "v/bin").mkdir(parents=True)
    (tmp_path / "v/bin/activate").write_text("")
    assert forked("submit", "--mem", "1G", "--venv", "v", "--dry-run", cwd=tmp_path).stderr == ""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--num-gpus", "2"], "--strategy sync computes on processors; --strategy ddp or accelerate uses GPUs."),
        (["--num-gpus", "2", "--strategy", "ddp"], "the job asks SLURM for no GPU"),
        (["--num-gpus=2", "--strategy", "ddp", "--sbatch=--gres=gpu:2"], ""),
        (["--ranks", "2"], ""),
    ],
)
def test_gpus_that_nobody_asks_for_are_said(words, told, tmp_path):
    ended = forked("submit", "--mem", "1G", "--dry-run", *words, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert (told in ended.stderr) if told else ended.stderr == ""
    assert "ranks: 2" in ended.stdout


@pytest.mark.parametrize(
    ("words", "starts"),
    [
        ([], "srun"),
        (["--launcher", "mpirun"], "mpirun"),
        (["--launcher", "unisono"], ""),
        (["--setup", "module load openmpi"], ""),
        (["--mpi", "none"], ""),
        (["--launcher", "srun", "--transport", "gloo"], ""),
    ],
)
def test_an_mpi_that_ranks_would_not_find_is_said(words, starts, tmp_path, monkeypatch):
    pytest.importorskip("mpi4py")
    monkeypatch.setenv("MPI4PY_LIBMPI", "/nowhere/libmpi.so")
    submit = ["submit", "--mem", "1G", "--dry-run", "--nodes", "2", "--ranks-per-node", "1", *words]
    ended = forked(*submit, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    told = f"ranks that {starts} starts fail at once unless their nodes have one.\nHINT: --launcher "
    assert (told in ended.stderr) if starts else ended.stderr == ""


def test_a_file_in_the_place_of_the_folder_of_outputs_is_said(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    ended = forked("submit", "--output", "notes.txt/x", "--mem", "1G", cwd=tmp_path)
    assert (ended.returncode, "notes.txt cannot be made" in ended.stderr) == (2, True)


def test_a_full_disk_leaves_the_script_that_was_there(tmp_path, monkeypatch):
    """A file may not become longer than its limit: as on a disk that is full, part of it would be written."""
    words = ["submit", "--mem", "1G", "--job-name", "mine"]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        ended = forked(*words, cwd=tmp_path)
        assert (ended.returncode, list(tmp_path.iterdir())) == (2, [])
        assert "mine.sbatch cannot be written: File too large\nHINT: give a place with --script" in ended.stderr
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_modules_do_not_take_the_environment_away(monkeypatch, tmp_path):
    """It is activated after them, and only if there is something to activate."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/activate").touch()
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    lines = script(job=JobOptions(mem="1G", module=("gcc/12",))).splitlines()
    assert lines.index("module load gcc/12") < lines.index(f". {tmp_path}/bin/activate || {{")
    assert "python=python" in lines
    (tmp_path / "bin/activate").unlink()
    assert "activate" not in script(job=JobOptions(mem="1G", module=("gcc/12",)))
    assert f"python={sys.executable}\n" in script()


def test_an_answer_of_sinfo_that_is_not_understood_is_said_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    put_command(tmp_path, "sbatch", "echo 17")
    put_command(tmp_path, "sinfo", "echo 'main*|two|2|4000'; echo what")
    app(["submit", "--mem", "1G"], exit_on_error=False, result_action="return_value")
    told = capsys.readouterr()
    assert told.err.count("sinfo answered, but not as expected: main*|two|2|4000 what; whether the cluster") == 1
    assert "Submitted: job 17 (unisono)" in told.out


def test_a_dry_run_prints_and_leaves_nothing(tmp_path):
    ended = forked("submit", "--ranks-per-node", "3", "--dry-run", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("#!/bin/bash\n")
    assert "#SBATCH --cpus-per-task=3\n" in ended.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_fetches_no_data(tmp_path, monkeypatch):
    def fetches(*_):
        raise AssertionError("it asked a server")

    monkeypatch.setattr("unisono.data.mnist_sets.find", lambda *_: None)
    monkeypatch.setattr("unisono.data.mnist_sets.fetch", fetches)
    ended = forked("submit", "--data", "mnist", "--ranks-per-node", "3", "--dry-run", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.startswith(
        "Note: mnist is not here, and a dry run fetches nothing, so the memory of the job is"
    )
    assert "#SBATCH --mem" not in ended.stdout
    ended = forked("submit", "--data", "mnist", "--mem", "1G", "--dry-run", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_options_go_to_train_as_they_were_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my job.toml").write_text("epochs = 3\n")
    text = script("my job.toml", lr=0.5, momentum=-1.0, respawn=False, tensorboard=True, out="some where")
    words = "'my job.toml' --lr 0.5 --momentum=-1.0 --no-respawn --tensorboard --ranks-per-node 2"
    assert f"-m unisono train {words} " in text
    assert 'run="some where"\n' in text
    assert '#SBATCH --job-name="my job"' in text
    app.parse_args(["train", "x.toml", "--momentum=-1.0", "--no-respawn"], exit_on_error=False, print_error=False)


def test_ranks_and_threads_make_the_tasks():
    text = script(job=JobOptions(mem="1G", nodes=2, launcher="srun", mpi="pmix"), ranks=4, threads=2)
    for line in ("--nodes=2", "--ntasks-per-node=2", "--cpus-per-task=2"):
        assert f"#SBATCH {line}\n" in text
    assert "export OMP_NUM_THREADS=2 " in text
    assert "--ranks 4" in text


@pytest.mark.parametrize("launcher", ["unisono", "srun", "torchrun", "accelerate", "mpirun"])
def test_the_network_is_passed_on_to_train(launcher):
    asked = {"mem": "1G", "nodes": 2, "ranks_per_node": 1, "venv": "/v"}
    job = JobOptions(**asked, launcher=launcher, interface="ib0", join_timeout=90)
    assert "train --interface ib0 --join-timeout 90 --ranks" in script(job=job)
    assert "--join-timeout" not in script(job=replace(job, interface="", join_timeout=0))


def test_tasks_of_an_array_get_their_number():
    text = script(job=JobOptions(mem="1G", array="1-3", array_option="batch-size-per-rank"))
    assert 'launch --out="$run" --batch-size-per-rank "$SLURM_ARRAY_TASK_ID" &\n' in text


def test_a_resumed_run_stays_where_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.toml").write_text("epochs = 3\n")
    text = script(resume="run")
    assert "run=run\n" in text
    assert "train --resume run --ranks-per-node 2 " in text
    assert "launch &\n" in text
