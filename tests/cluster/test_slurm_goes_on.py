"""Jobs that are warned, preempted, requeued, cancelled: they go on, or end for good, always with a quiet run's weights.

A requeued job starts again after 6 seconds, so few jobs go through all of it.
"""

import pytest

from support.cluster.slurm_jobs import Desk, can_start
from support.paths import worker
from unisono.recipe import Recipe
from unisono.runs.lifecycle import run_recipe
from unisono.storage.resume import recipe_of

EPOCHS = 60
RECIPE = Recipe.from_options(epochs=EPOCHS, model="bn-mlp")
OPTIONS = ["--epochs", str(EPOCHS), "--model", "bn-mlp", "--mem", "500M"]
SLOWLY, MORE_SLOWLY, MOST_SLOWLY = (["--slow", f"0:{factor}"] for factor in (20, 50, 400))
"""An epoch of 5 ms is over before it is struck: once, several times or beside others, and never to go on by itself."""
LIMIT = ["--time", "2", "--sbatch=--signal=B:USR1@119"]
"""The last line of a kind counts: warned as early as can be."""
AGAIN = "Started again by the launcher (restart {})."


@pytest.fixture(scope="module")
def sha256(tmp_path_factory):
    """Of a quiet run, by its seed."""
    found = {}

    def of(seed: int = 0) -> str:
        if seed not in found:
            out = str(tmp_path_factory.mktemp("quiet") / "run")
            found[seed] = run_recipe(RECIPE.with_options(seed=seed, out=out))["weights_sha256"]
        return found[seed]

    return of


def check_whole(mailbox: Desk, run: str, expected: str) -> None:
    summary = mailbox.summary(run)
    assert (summary["status"], summary["weights_sha256"]) == ("finished", expected)
    assert mailbox.epochs(run) == [*range(1, EPOCHS + 1)]


@pytest.mark.timeout(240)
def test_signals_requeues_preemption_and_the_time_limit(mailbox, sha256):
    """SLURM looks at time limits every 30 s: meanwhile another job is struck by everything else."""
    limited = mailbox.submit(*OPTIONS, *MOST_SLOWLY, "--job-name", "limited", *LIMIT)
    struck = mailbox.submit(*OPTIONS, *MORE_SLOWLY, "--job-name", "struck")
    mailbox.until_said(struck, "epoch 2/")
    mailbox.slurm.call(["scancel", "--batch", "--signal=USR1", struck])
    mailbox.until_said(struck, AGAIN.format(1))
    mailbox.until_said(struck, "Resumed from")
    mailbox.slurm.call(["scontrol", "requeue", struck])
    mailbox.until_said(struck, AGAIN.format(2))
    mailbox.until_said(struck, "Resumed from", 2)
    urgent = ["sbatch", "-p", "urgent", "--exclusive", "-w", mailbox.show(struck, "NodeList"), "--wrap", "true"]
    mailbox.slurm.call(urgent, cwd=mailbox.place)
    mailbox.until_over(struck)
    check_whole(mailbox, f"runs/struck-{struck}", sha256())
    assert mailbox.show(struck, "Restarts") == "3"
    said = mailbox.output(struck)
    assert said.count(" is queued again, and will go on in ") == 1  # the other times it was not the script's doing
    assert [f"start {n}" in said for n in (1, 2, 3, 4, 5)] == [True] * 4 + [False]

    mailbox.until_said(limited, f"unisono: job {limited} is queued again, and will go on in runs/limited-{limited}")
    mailbox.slurm.settle()  # it would be as slow as before
    run = str(mailbox.place / "runs" / f"limited-{limited}")
    assert run_recipe(recipe_of(run, {"slow": ""}))["weights_sha256"] == sha256()


@pytest.mark.timeout(240)
def test_cancelled_it_ends_for_good_and_can_be_resumed(mailbox, sha256):
    """With torchrun ranks get the signal twice: from SLURM, and from torchrun, which got it, too."""
    launcher = ["--launcher", "torchrun" if can_start("torchrun") else "unisono"]
    job = mailbox.submit(*OPTIONS, *MOST_SLOWLY, *launcher, "--job-name", "mine")
    mailbox.until_said(job, "epoch 2/")
    code, out, err = mailbox.unisono("cancel", job)
    assert (code, out) == (0, f"job {job} was asked to end; unisono jobs tells when it has\n"), err
    mailbox.until_over(job)
    assert (mailbox.show(job, "JobState"), mailbox.show(job, "Restarts")) == ("CANCELLED", "0")
    run = f"runs/mine-{job}"
    assert mailbox.summary(run)["status"] == "halted"
    code, out, err = mailbox.unisono(
        "submit", "--resume", run, "--slow", "", "--mem", "500M", "--follow", "--poll-s", "0.2"
    )
    assert code == 0, out + err
    check_whole(mailbox, run, sha256())


@pytest.mark.timeout(240)
def test_of_an_array_one_task_is_queued_again(mailbox, sha256):
    launcher = ["--launcher", "srun" if can_start("srun") else "unisono"]
    job = mailbox.submit(*OPTIONS, *MORE_SLOWLY, *launcher, "--job-name", "mine", "--array", "1-2")
    for task in (1, 2):
        mailbox.until_said(f"{job}_{task}", "epoch 2/")
    assert mailbox.show(f"{job}_2", "JobId") == job  # whoever requeues by that number hits both
    mailbox.slurm.call(["scancel", "--batch", "--signal=USR1", f"{job}_2"])
    mailbox.until_said(f"{job}_2", AGAIN.format(1))
    mailbox.until_over(f"{job}_1", f"{job}_2")
    assert [mailbox.show(f"{job}_{task}", "Restarts") for task in (1, 2)] == ["0", "1"]
    for task in (1, 2):
        check_whole(mailbox, f"runs/mine-{job}_{task}", sha256(task))


@pytest.mark.timeout(240)
@pytest.mark.skipif(not can_start("torchrun"), reason="torch is not installed: supervisors talk over gloo")
def test_supervisors_on_two_nodes_go_on(mailbox, sha256):
    where = ["--launcher", "unisono", "--nodes", "2", "--ranks-per-node", "2", "--job-name", "both"]
    job = mailbox.submit(*OPTIONS, *SLOWLY, *where)
    mailbox.until_said(job, "epoch 2/")
    mailbox.slurm.call(["scancel", "--batch", "--signal=USR1", job])
    mailbox.until_said(job, AGAIN.format(1))
    mailbox.until_said(job, "Resumed from")
    mailbox.until_over(job)
    assert (mailbox.show(job, "NodeList"), mailbox.show(job, "Restarts")) == ("n[1-2]", "1")
    check_whole(mailbox, f"runs/both-{job}", sha256())


@pytest.mark.timeout(240)
@pytest.mark.skipif(not can_start("torchrun"), reason="torch is not installed")
@pytest.mark.parametrize("launcher", ["unisono", "srun"])
def test_a_failure_on_one_node_that_would_come_again_is_not_queued_again(launcher, mailbox):
    if not can_start(launcher):
        pytest.skip("no MPI that srun can start")
    frail = ["--model", f"{worker('frail_module')[1]}:make", "--epochs", "30", "--mem", "500M"]
    job = mailbox.submit(*frail, "--launcher", launcher, "--nodes", "2", "--ranks-per-node", "1", "--job-name", "frail")
    mailbox.until_over(job)
    said = mailbox.output(job)
    assert "ValueError: this batch has no label" in said
    assert "queued again" not in said
    assert (mailbox.show(job, "JobState"), mailbox.show(job, "ExitCode"), mailbox.show(job, "Restarts")) == (
        "FAILED", "1:0", "0",
    ), said  # fmt: skip
