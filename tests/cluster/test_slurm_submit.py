"""`unisono submit` on a real SLURM: every launcher ends with one hash, and what is wrong is said.

Jobs are submitted together and waited for together: each takes seconds, most of which are imports.
"""

import re

import pytest

from support.cluster.slurm_jobs import QUICK, can_start, rank_of
from unisono.launch.launcher_commands import find_program
from unisono.recipe.reading import load
from unisono.runs.lifecycle import run_recipe

DATA = "synthetic:classes=20,rows=3000,features=512,difficulty=0.5"
RECIPE = load("r4", {"batch_size": 1024, "epochs": 2, "data": DATA})
OPTIONS = ["r4", "--batch-size", "1024", "--epochs", "2", "--data", DATA, "--mem", "500M"]
"""With a fixed batch, and fewer rows."""
NASTY = 'mine $(touch hacked) "it\'s" \\n #1 `id`; caf\u00e9 %j'
ONE_NODE = [("unisono", 1, 1), ("srun", 1, 2), ("mpirun", 1, 2), ("torchrun", 1, 2), ("accelerate", 1, 2)]
TWO_NODES = [("unisono", 2, 2), ("srun", 2, 1), ("mpirun", 2, 2), ("torchrun", 2, 2), ("accelerate", 2, 1)]
"""Launcher, nodes, ranks on each."""

with_mpi = pytest.mark.skipif(not can_start("srun"), reason="mpi4py, mpirun or MPI's library is not installed")


def expected(tmp_path_factory, **options: object) -> str:
    recipe = RECIPE.with_options(out=str(tmp_path_factory.mktemp("quiet") / "run"), **options)
    return run_recipe(recipe)["weights_sha256"]


@pytest.fixture(scope="module")
def sync_sha256(tmp_path_factory) -> str:
    return expected(tmp_path_factory)


@pytest.fixture(scope="module")
def ring_sha256(tmp_path_factory) -> str:
    """Of two replicas: the same bits wherever they are."""
    return expected(tmp_path_factory, allreduce="ring")


@pytest.mark.timeout(240)
def test_a_job_is_followed_to_its_end(mailbox, sync_sha256):
    """Whatever it is called: neither sbatch nor a shell takes a part of its name for anything else."""
    name = NASTY
    options = ["--job-name", name, "--script=--wrap=id", "--time", "10", "--follow", *QUICK]
    code, out, err = mailbox.unisono("submit", *OPTIONS, *options)
    assert code == 0, err
    assert not (mailbox.place / "hacked").exists()
    job = out.split("Submitted: job ")[1].split()[0]
    lines = out.splitlines()
    assert f"unisono: job {job} on n1, start 1" in lines
    assert f"main address: n1:{20000 + int(job)}, run directory: runs/{name}-{job}" in lines
    assert [line.split()[1] for line in lines if line.startswith("epoch ")] == ["1/2", "2/2"]
    assert f"unisono: job {job}: RUNNING on n1\n" in err
    assert err.endswith(f"unisono: job {job}: COMPLETED\n")
    assert mailbox.summary(f"runs/{name}-{job}")["weights_sha256"] == sync_sha256
    code, out, err = mailbox.unisono("jobs")
    assert (code, err) == (0, "")
    (row,) = [line for line in out.splitlines() if line.startswith(job)]
    assert "  COMPLETED  n1  " in row
    assert f" JobName={name} UserId=" in mailbox.slurm.call(["scontrol", "--oneliner", "show", "job", job]).stdout
    assert mailbox.unisono("cancel", job)[1] == f"job {job} is over already: COMPLETED\n"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("layouts", [pytest.param(ONE_NODE, id="one node"), pytest.param(TWO_NODES, id="two nodes")])
def test_every_launcher_ends_with_one_hash(mailbox, sync_sha256, layouts):
    jobs = {}
    for launcher, nodes, ranks in layouts:
        if can_start(launcher):
            where = ["--launcher", launcher, "--nodes", str(nodes), "--ranks-per-node", str(ranks)]
            jobs[launcher] = mailbox.submit(*OPTIONS, *where, "--job-name", launcher), nodes * ranks
    for launcher, (job, ranks) in jobs.items():
        mailbox.until_over(job)
        assert mailbox.show(job, "ExitCode") == "0:0", mailbox.output(job)
        summary = mailbox.summary(f"runs/{launcher}-{job}")
        assert (summary["weights_sha256"], summary["ranks"]) == (sync_sha256, ranks), launcher


@with_mpi
def test_replicas_on_two_nodes(mailbox, ring_sha256):
    where = ["--nodes", "2", "--ranks-per-node", "1", "--launcher", "srun", "--job-name", "ring"]
    job = mailbox.submit(*OPTIONS, *where, "--allreduce", "ring", "--transport", "mpi")
    mailbox.until_over(job)
    assert mailbox.show(job, "ExitCode") == "0:0", mailbox.output(job)
    assert mailbox.show(job, "NodeList") == "n[1-2]"
    assert mailbox.summary(f"runs/ring-{job}")["weights_sha256"] == ring_sha256


@with_mpi
def test_worlds_of_one_are_refused_with_the_flag(mailbox):
    """Open MPI under pmi2 starts each task as a world of its own, and says nothing. The exit code is handed on."""
    code, out, err = mailbox.unisono("submit", *OPTIONS, "--launcher", "srun", "--mpi", "pmi2", "--follow", *QUICK)
    assert code == 2, err
    assert "PMI says 2 ranks, MPI says a world of 1" in out
    assert "HINT: this MPI is Open MPI: start it with `srun --mpi=pmix`, or with mpirun" in out
    assert "FAILED (exit code 2)" in err
    told = mailbox.slurm.call(["srun", "-n2", find_program("unisono") or "unisono", "train"], cwd=mailbox.place)
    assert "SLURM says 2 tasks, MPI says a world of 1" in told.stderr
    assert told.returncode == 2


@with_mpi
def test_a_rank_that_is_killed_is_named_with_the_memory_that_the_job_asked_for(mailbox):
    """Its neighbour saves what was reached, and the job goes on; in the middle of an update it cannot, and it ends."""
    job = mailbox.submit("--epochs", "300", "--slow", "0:10", "--mem", "500M", "--launcher", "srun")
    mailbox.until_said(job, "epoch 2/")
    rank_of(job, 1).kill()
    mailbox.until_over(job)
    said = mailbox.output(job)
    state = "COMPLETED" if "is queued again, and will go on" in said else "FAILED"
    assert mailbox.show(job, "JobState") == state, said
    assert "rank 1" in said or "task 1: Killed" in said
    assert re.search("most often (that is )?for memory", said), mailbox.show(job, "ExitCode")
    assert "HINT: this job asked for 500M a node" in said


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["--ranks-per-node", "8", "--mem", "1G"],
            "1 node of 8 cores and 1024 MB, and would wait for ever: main has 2 ",
        ),
        (["--ranks-per-node", "1", "--nodes", "3", "--mem", "1G"], "2 nodes of 2 cores and 4000 MB"),
        (["--mem", "99G"], "2 cores and 101376 MB, and would wait for ever"),
        (["--partition", "none", "--mem", "1G"], "there is no partition none"),
        (["--account", "me", "--mem", "1G", "--sbatch=--no-such"], "sbatch refused: "),
    ],
)
def test_what_the_cluster_does_not_have_is_refused(mailbox, arguments, told):
    code, _, err = mailbox.unisono("submit", *arguments)
    assert code == 2
    assert told in err
    assert "HINT: " in err


def test_a_job_of_others_is_not_cancelled(mailbox):
    job = mailbox.slurm.call(["sbatch", "--parsable", "--wrap", "exec sleep 60"], cwd=mailbox.place).stdout.strip()
    code, _, err = mailbox.unisono("cancel", job)
    assert code == 2
    assert f"job {job} was not submitted by unisono\nHINT: end it with scancel {job}" in err
    assert mailbox.show(job, "JobState") in ("PENDING", "RUNNING")
    theirs = ["sbatch", "--parsable", "--uid=nobody", "--comment=unisono", "--chdir=/", "--output=/dev/null"]
    job = mailbox.slurm.call([*theirs, "--wrap", "exec sleep 60"], cwd=mailbox.place).stdout.strip()
    code, _, err = mailbox.unisono("cancel", job)
    assert (code, f"job {job} is nobody's, not yours\nHINT: " in err) == (2, True), err
    assert mailbox.show(job, "JobState") != "CANCELLED"  # whether it can run as somebody else does not matter here
    assert "SLURM knows no job 999" in mailbox.unisono("cancel", "999")[2]
