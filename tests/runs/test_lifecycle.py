"""The lifecycle of a run: what it asks of its mode, in which order, and what is left when a step fails."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.needs import needs_mpi
from unisono.environment.os_environ import mpi_environment
from unisono.errors import RankFailed, UnisonoError, UserError
from unisono.launch.launcher_commands import mpirun
from unisono.recipe import Recipe
from unisono.runs.lifecycle import RunLifecycle, find_start, run_recipe
from unisono.runs.recorder import Recorder
from unisono.runs.run_modes.base import Allocation
from unisono.runs.run_modes.supervised import SupervisedMode
from unisono.runs.snapshots.failover import FailoverPlace
from unisono.storage.resume import recipe_of
from unisono.storage.snapshots.snapshot import Snapshot

pytestmark = pytest.mark.usefixtures("no_price")

RECIPE = Recipe.from_options(
    model="mlp:8", data="synthetic:classes=4,rows=64,features=8,test_rows=32", epochs=1, batch_size=16, ranks=1
)
STEPS = ["connect", "from_first", "prepare", "restore", "allocation", "from_first", "train", "left"]


class NotingMode:
    """A supervised one that notes what it is asked for, and fails at a step."""

    def __init__(self, failing: str = "", error: Exception | None = None) -> None:
        self._inner, self.asked = SupervisedMode(), list[str]()
        self.restarts = self._inner.restarts
        self._failing, self._error = failing, error

    def __getattr__(self, step: str) -> Any:
        """A step of `RunMode`, whose answer is that of the mode inside."""

        def asked(*given: Any) -> Any:
            self.asked.append(step)
            if self._failing == step and self._error is not None:
                raise self._error
            return getattr(self._inner, step)(*given)

        return asked

    @contextmanager
    def connect(self, recipe: Recipe) -> Iterator[Recipe]:
        self.asked.append("connect")
        try:
            with self._inner.connect(recipe) as agreed:
                yield agreed
        finally:
            self.asked.append("left")

    def allocation(self) -> Allocation:
        return replace(self.__getattr__("allocation")(), notes=["a note of the mode"])

    def train(self, record: Recorder, failover_place: FailoverPlace) -> dict[str, Any] | None:
        assert Path(failover_place.path) == record.path.resolve()
        return self.__getattr__("train")(record, failover_place)


def test_the_steps_of_a_run(tmp_path, capsys):
    mode = NotingMode()
    lifecycle = RunLifecycle(RECIPE.with_options(out=str(tmp_path / "run")), mode)
    lifecycle.run()
    assert mode.asked == STEPS
    assert lifecycle.path == tmp_path / "run"
    assert lifecycle.summary is not None
    assert lifecycle.summary["status"] == "finished"
    assert "a note of the mode" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("step", "error"),
    [("prepare", UnisonoError), ("restore", UnisonoError), ("allocation", UnisonoError), ("train", UserError)],
)
def test_what_fails_before_the_record_is_opened_and_a_mistake_before_the_first_epoch_leave_nothing(
    step, error, tmp_path
):
    mode = NotingMode(step, error("no"))
    with pytest.raises(error, match="no"):
        RunLifecycle(RECIPE.with_options(out=str(tmp_path / "run")), mode).run()
    assert mode.asked == [*STEPS[: STEPS.index(step) + 1], "left"]
    assert list(tmp_path.iterdir()) == []


def test_a_rank_that_fails_is_told_with_what_was_reached(tmp_path):
    error = RankFailed(0, "was killed by SIGKILL")
    lifecycle = RunLifecycle(RECIPE.with_options(out=str(tmp_path / "run")), NotingMode("train", error))
    with pytest.raises(UnisonoError, match=rf"^rank 0: was killed by SIGKILL\n.* is in {tmp_path}/run$"):
        lifecycle.run()
    assert lifecycle.summary is None


UNDER_MPIRUN = """
import sys, unisono
from unisono.environment.os_environ import detect
rank = detect().rank
model, data = {"right": "mlp:8", "wrong": "mlpx"}[sys.argv[1]], "synthetic:classes=4,rows=64,features=8,test_rows=32"
try:
    run = unisono.train(model=model, data=data, epochs=1, batch_size=16, out="run", quiet=True)
except unisono.UserError as error:
    print(f"rank {rank}: {error.shown} {error}".splitlines()[0], flush=True)
else:
    print(f"rank {rank}: {run.path.name} {run.summary.get('status')}", flush=True)
"""


@needs_mpi
@pytest.mark.parametrize(
    ("which", "told"),
    [
        ("right", ["rank 0: run finished", "rank 1: run None"]),
        ("wrong", ["rank 0: False unknown model 'mlpx'", "rank 1: True unknown model 'mlpx'"]),
    ],
)
def test_from_python_under_mpirun_every_rank_has_the_run_or_the_exception(which, told, tmp_path):
    (tmp_path / "script.py").write_text(UNDER_MPIRUN)
    ended = subprocess.run(
        mpirun(2, [sys.executable, "script.py", which]), cwd=tmp_path, env=mpi_environment(), capture_output=True,
        text=True, timeout=100, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    lines = sorted(ended.stdout.splitlines())
    assert [line.partition(";")[0] for line in lines] == told


def test_files_that_are_not_here_are_found_where_the_run_was_started(tmp_path, monkeypatch, capsys):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    x, y = np.arange(256, dtype=np.float32).reshape(64, 4) / 256, np.arange(64) % 2
    np.savez(tmp_path / "first" / "own.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    monkeypatch.chdir(tmp_path / "first")
    run = str(tmp_path / "run")
    run_recipe(
        Recipe.from_options(model="mlp:4", data="own.npz", epochs=1, batch_size=16, snapshot_every="1epoch", out=run)
    )
    monkeypatch.chdir(tmp_path / "second")
    snapshots: list[Snapshot] = []
    capsys.readouterr()
    found = find_start(recipe_of(run, {"resume": run, "epochs": 2, "allow_change": "epochs"}), 0, snapshots)
    there = str(tmp_path / "first" / "own.npz")
    assert found["changed"]["data"] == there
    assert (found["position"], found["anew"]) == (snapshots[0].position, False)
    assert capsys.readouterr().out == f"--data own.npz is not here: taken from {there}\n"
