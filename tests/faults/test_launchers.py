"""Ranks of mpirun and torchrun: asked to end, killed, started again, elsewhere: always the weights of a quiet run.

Few launches, each for several questions: they take seconds.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from support.needs import needs_mpi, needs_torch
from unisono.environment.os_environ import child_environment
from unisono.launch.launcher_commands import mpirun
from unisono.recipe import Recipe
from unisono.runs.lifecycle import run_recipe
from unisono.storage.resume import recipe_of
from unisono.storage.snapshots.snapshot import listed, require_newest

EPOCHS = 100
RECIPE = Recipe.from_options(epochs=EPOCHS, ranks=2, model="bn-mlp")
TRAIN = [sys.executable, "-m", "unisono", "train"]
OPTIONS = ["--epochs", str(EPOCHS), "--model", "bn-mlp", "--slow", "0:30"]  # else an epoch is over before it is struck
ROUNDS = 24  # an epoch: 23 steps, and the round that closes it


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> str:
    return run_recipe(RECIPE.with_options(out=str(tmp_path_factory.mktemp("quiet") / "run")))["weights_sha256"]


class Launch:
    """A job of another launcher, in a process group of its own. Leaving the block ends whatever is left of it."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.job = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0
        )
        self.said = ""
        self._everybody: set[psutil.Process] = set()

    def until(self, beginning: str) -> None:
        """Until a line was printed that begins like this."""
        line = ""
        while not line.startswith(beginning):
            line = self.job.stdout.readline()
            self.said += line
            assert line, self.said
        self._everybody |= set(psutil.Process(self.job.pid).children(recursive=True))

    def wait(self, ready: Callable[[], bool]) -> None:
        """While the job runs, until that is so."""
        while not ready():
            assert self.job.poll() is None, self.said
            time.sleep(0.02)

    def rank(self, number: int) -> psutil.Process:
        """The process that trains as this rank."""
        for process in psutil.Process(self.job.pid).children(recursive=True):
            environ = process.environ()
            found = environ.get("RANK", environ.get("OMPI_COMM_WORLD_RANK"))
            if found == str(number) and "train" in process.cmdline():
                return process
        raise AssertionError(self.said)

    def end(self) -> int:
        """It ends by itself; its exit code."""
        rest, _ = self.job.communicate(timeout=110)
        self.said += rest
        return self.job.returncode

    def __enter__(self) -> "Launch":
        return self

    def __exit__(self, *given: object) -> None:
        if self.job.poll() is None:
            self._everybody.add(psutil.Process(self.job.pid))
        for process in self._everybody:
            if process.is_running():
                process.kill()
        self.job.wait()
        self.job.stdout.close()


def halted(run: Path, launch: Launch) -> int:
    """The position of the snapshot of a run that was asked to end, and says how to go on."""
    assert launch.end() == 75, launch.said
    assert launch.said.count(f"HINT: go on with unisono train --resume {run}") == 1
    assert json.loads((run / "summary.json").read_text())["status"] == "halted"
    return require_newest(run / "snapshots").position


def strike_when_saved(run: Path, launch: Launch, epoch: int, saved: int, rank: int) -> None:
    """Kills a rank in that epoch, once there is a snapshot after position `saved`: it is written aside."""
    launch.until(f"epoch {epoch}/")
    launch.wait(lambda: require_newest(run / "snapshots").position > saved)
    launch.rank(rank).kill()
    assert launch.end() not in (0, 75)
    assert f"rank {rank}" in launch.said


def epochs_of(run: Path) -> list[int]:
    return [json.loads(line)["epoch"] for line in (run / "metrics.jsonl").read_text().splitlines()]


@needs_mpi
def test_a_job_of_mpirun_that_is_killed_as_a_whole_leaves_nothing(killable_mpi):
    """Else a test that fails would make those after it fail: what is left is looked for after every test."""
    waits = "from mpi4py import MPI; MPI.COMM_WORLD.Barrier(); print('here', flush=True); import time; time.sleep(300)"
    with Launch(mpirun(2, [sys.executable, "-c", waits]), killable_mpi) as launch:
        launch.until("here")
        assert any(Path(killable_mpi["OMPI_MCA_btl_sm_backing_directory"]).iterdir()), "it lies elsewhere"


@needs_mpi
def test_mpirun_asked_to_end_then_killed_then_resumed_elsewhere(tmp_path, expected, killable_mpi):
    run, environment = tmp_path / "run", killable_mpi
    with Launch(mpirun(3, [*TRAIN, *OPTIONS, "--out", str(run)]), environment) as launch:
        launch.until("epoch 2/")
        launch.rank(2).send_signal(signal.SIGUSR1)
        saved = halted(run, launch)
    with Launch(mpirun(2, [*TRAIN, "--resume", str(run), "--snapshot-every", "10steps"]), environment) as launch:
        strike_when_saved(run, launch, saved // ROUNDS + 4, saved, rank=1)

    summary = run_recipe(recipe_of(str(run), {"ranks": 1, "slow": ""}))
    assert (summary["weights_sha256"], summary["status"]) == (expected, "finished")
    assert epochs_of(run) == [*range(1, EPOCHS + 1)]


@needs_mpi
def test_mpirun_replicas_go_on_with_the_same_bits(tmp_path, killable_mpi):
    run, way = tmp_path / "run", ["--allreduce", "ring", "--transport", "mpi", "--epochs", "40", "--slow", "0:30"]
    quiet = run_recipe(RECIPE.with_options(allreduce="ring", epochs=40, out=str(tmp_path / "quiet")))
    with Launch(mpirun(2, [*TRAIN, "--model", "bn-mlp", *way, "--out", str(run)]), killable_mpi) as launch:
        launch.until("epoch 2/")
        launch.rank(1).send_signal(signal.SIGTERM)
        halted(run, launch)
    with Launch(mpirun(2, [*TRAIN, "--resume", str(run), "--slow", ""]), killable_mpi) as launch:
        assert launch.end() == 0, launch.said
    summary = json.loads((run / "summary.json").read_text())
    for name in ("status", "weights_sha256", "train_loss", "test_loss", "epochs", "steps", "samples"):
        assert summary[name] == quiet[name]
    assert epochs_of(run) == [*range(1, 41)]


ASYNC = ["--strategy", "async", "--masters", "2", "--batch-size", "16", "--order", "round-robin", "--slow", "2:30"]


@needs_mpi
def test_mpirun_async_asked_to_end_then_killed_then_resumed_elsewhere(tmp_path, killable_mpi):
    run, environment, epochs = tmp_path / "run", killable_mpi, 40
    options = [*ASYNC, "--epochs", str(epochs), "--model", "bn-mlp"]
    with Launch(mpirun(4, [*TRAIN, *options, "--out", str(run)]), environment) as launch:
        launch.until("epoch 2/")
        launch.rank(3).send_signal(signal.SIGUSR1)  # a worker, and nobody else
        saved = halted(run, launch)
    with Launch(mpirun(4, [*TRAIN, "--resume", str(run), "--snapshot-every", "1epochs"]), environment) as launch:
        strike_when_saved(run, launch, saved // 2 + 4, saved, rank=1)  # a master

    summary = run_recipe(recipe_of(str(run), {"ranks": 3, "slow": "", "allow_change": "ranks"}))
    assert (summary["status"], summary["epochs"], summary["workers"]) == ("finished", epochs, 1)
    assert epochs_of(run) == [*range(1, epochs + 1)]


@needs_torch
@pytest.mark.timeout(300)
def test_torchrun_starts_all_again_when_one_is_killed(tmp_path, expected):
    """From the beginning, and says so, while there is no snapshot; then from the newest. When it is asked to end itself
    it passes that on, and starts nobody again."""
    run = tmp_path / "run"
    options = [*OPTIONS, "--snapshot-every", "120steps", "--out", str(run)]  # after five epochs
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=3"]
    with Launch([*torchrun, "-m", "unisono", "train", *options], child_environment(threads=1)) as launch:
        launch.until("epoch 2/")
        launch.rank(0).kill()  # who saves what was reached when another one dies
        launch.until("Started again by the launcher (restart 1), from the beginning: no snapshot was written yet.")
        launch.until("epoch 1/")
        launch.until("epoch 6/")
        launch.wait(lambda: bool(listed(run / "snapshots")))
        launch.rank(1).kill()
        launch.until("Started again by the launcher (restart 2).")
        launch.until("Resumed from")
        launch.until("epoch 10/")
        launch.job.terminate()
        launch.end()
    assert f"HINT: go on with unisono train --resume {run}" in launch.said
    assert "restart 3" not in launch.said
    assert json.loads((run / "summary.json").read_text())["status"] == "halted"
    assert run_recipe(recipe_of(str(run), {"ranks": 3, "slow": ""}))["weights_sha256"] == expected
    assert epochs_of(run) == [*range(1, EPOCHS + 1)]
