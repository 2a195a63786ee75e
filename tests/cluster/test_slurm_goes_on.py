"""Jobs that are warned, preempted, requeued, cancelled: they go on, or end for good, always with a quiet run's weights.

A requeued job starts again after 6 seconds, so few jobs go through all of it.
"""

import pytest

from support.cluster.slurm_jobs import Desk, can_start
from support.paths import worker
from unisono.recipe import Recipe
from unisono.runs.course import run_recipe
from unisono.train.resuming import recipe_of

EPOCHS = 60
RECIPE = Recipe.from_options(epochs=EPOCHS, model="bn-mlp")
OPTIONS = ["--epochs", str(EPOCHS), "--model", "bn-mlp", "--mem", "500M"]
SLOWLY, MORE_SLOWLY, MOST_SLOWLY = (["--slow", f"0:{factor}"] for factor in (20, 50, 400))
"""An epoch of 5 ms is over before it is struck: once, several times or beside others, and never to go on by itself."""
LIMIT = ["--time", "2", "--sbatch=--signal=B:USR1@119"]
"""The last line of a kind counts: warned as early as can be."""
AGAIN = "Started again by the launcher (restart {})."


@pytest.fixture
def desk(slurm, tmp_path) -> Desk:
    return Desk(slurm, tmp_path)


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


def check_whole(desk: Desk, run: str, expected: str) -> None:
    summary = desk.summary(run)
    assert (summary["status"], summary["weights_sha256"]) == ("finished", expected)
    assert desk.epochs(run) == [*range(1, EPOCHS + 1)]


@pytest.mark.timeout(240)
def test_signals_requeues_preemption_and_the_time_limit(desk, sha256):
    """SLURM looks at time limits every 30 s: meanwhile another job is struck by everything else."""
    limited = desk.submit(*OPTIONS, *MOST_SLOWLY, "--job-name", "limited", *LIMIT)
    struck = desk.submit(*OPTIONS, *MORE_SLOWLY, "--job-name", "struck")
    desk.until_said(struck, "epoch 2/")
    desk.slurm.call(["scancel", "--batch", "--signal=USR1", struck])
    desk.until_said(struck, AGAIN.format(1))
    desk.until_said(struck, "Resumed from")
    desk.slurm.call(["scontrol", "requeue", struck])
    desk.until_said(struck, AGAIN.format(2))
    desk.until_said(struck, "Resumed from", 2)
    urgent = ["sbatch", "-p", "urgent", "--exclusive", "-w", desk.show(struck, "NodeList"), "--wrap", "true"]
    desk.slurm.call(urgent, cwd=desk.place)
    desk.until_over(struck)
    check_whole(desk, f"runs/struck-{struck}", sha256())
    assert desk.show(struck, "Restarts") == "3"
    said = desk.output(struck)
    assert said.count(" is queued again, and will go on in ") == 1  # the other times it was not the script's doing
    assert [f"start {n}" in said for n in (1, 2, 3, 4, 5)] == [True] * 4 + [False]

    desk.until_said(limited, f"unisono: job {limited} is queued again, and will go on in runs/limited-{limited}")
    desk.slurm.settle()  # it would be as slow as before
    run = str(desk.place / "runs" / f"limited-{limited}")
    assert run_recipe(recipe_of(run, {"slow": ""}))["weights_sha256"] == sha256()


@pytest.mark.timeout(240)
def test_cancelled_it_ends_for_good_and_can_be_resumed(desk, sha256):
    """With torchrun ranks get the signal twice: from SLURM, and from torchrun, which got it, too."""
    launcher = ["--launcher", "torchrun" if can_start("torchrun") else "unisono"]
    job = desk.submit(*OPTIONS, *MOST_SLOWLY, *launcher, "--job-name", "mine")
    desk.until_said(job, "epoch 2/")
    code, out, err = desk.unisono("cancel", job)
    assert (code, out) == (0, f"job {job} was asked to end; unisono jobs tells when it has\n"), err
    desk.until_over(job)
    assert (desk.show(job, "JobState"), desk.show(job, "Restarts")) == ("CANCELLED", "0")
    run = f"runs/mine-{job}"
    assert desk.summary(run)["status"] == "halted"
    code, out, err = desk.unisono(
        "submit", "--resume", run, "--slow", "", "--mem", "500M", "--follow", "--poll-s", "0.2"
    )
    assert code == 0, out + err
    check_whole(desk, run, sha256())


@pytest.mark.timeout(240)
def test_of_an_array_one_task_is_queued_again(desk, sha256):
    launcher = ["--launcher", "srun" if can_start("srun") else "unisono"]
    job = desk.submit(*OPTIONS, *MORE_SLOWLY, *launcher, "--job-name", "mine", "--array", "1-2")
    for task in (1, 2):
        desk.until_said(f"{job}_{task}", "epoch 2/")
    assert desk.show(f"{job}_2", "JobId") == job  # whoever requeues by that number hits both
    desk.slurm.call(["scancel", "--batch", "--signal=USR1", f"{job}_2"])
    desk.until_said(f"{job}_2", AGAIN.format(1))
    desk.until_over(f"{job}_1", f"{job}_2")
    assert [desk.show(f"{job}_{task}", "Restarts") for task in (1, 2)] == ["0", "1"]
    for task in (1, 2):
        check_whole(desk, f"runs/mine-{job}_{task}", sha256(task))


@pytest.mark.timeout(240)
@pytest.mark.skipif(not can_start("torchrun"), reason="torch is not installed: supervisors talk over gloo")
def test_supervisors_on_two_nodes_go_on(desk, sha256):
    where = ["--launcher", "unisono", "--nodes", "2", "--ranks-per-node", "2", "--job-name", "both"]
    job = desk.submit(*OPTIONS, *SLOWLY, *where)
    desk.until_said(job, "epoch 2/")
    desk.slurm.call(["scancel", "--batch", "--signal=USR1", job])
    desk.until_said(job, AGAIN.format(1))
    desk.until_said(job, "Resumed from")
    desk.until_over(job)
    assert (desk.show(job, "NodeList"), desk.show(job, "Restarts")) == ("n[1-2]", "1")
    check_whole(desk, f"runs/both-{job}", sha256())


@pytest.mark.timeout(240)
@pytest.mark.skipif(not can_start("torchrun"), reason="torch is not installed")
@pytest.mark.parametrize("launcher", ["unisono", "srun"])
def test_a_failure_on_one_node_that_would_come_again_is_not_queued_again(launcher, desk):
    if not can_start(launcher):
        pytest.skip("no MPI that srun can start")
    frail = ["--model", f"{worker('frail_module')[1]}:make", "--epochs", "30", "--mem", "500M"]
    job = desk.submit(*frail, "--launcher", launcher, "--nodes", "2", "--ranks-per-node", "1", "--job-name", "frail")
    desk.until_over(job)
    said = desk.output(job)
    assert "ValueError: this batch has no label" in said
    assert "queued again" not in said
    assert (desk.show(job, "JobState"), desk.show(job, "ExitCode"), desk.show(job, "Restarts")) == (
        "FAILED", "1:0", "0",
    ), said  # fmt: skip
