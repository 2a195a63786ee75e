"""The course of a run: what it asks of a host, in which order, and what is left when a step fails."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from unisono.environment.variables import mpi_environment
from unisono.errors import RankFailed, UnisonoError, UserError
from unisono.launch.commands import find_program, mpirun
from unisono.recipe import Recipe
from unisono.runs.course import Course
from unisono.runs.hosts.base import Allocation, Host, Value
from unisono.runs.hosts.supervised import SupervisedHost
from unisono.runs.recorder import Recorder
from unisono.runs.snapshots.failover import FailoverPlace
from unisono.storage.snapshots.snapshot import Snapshot
from unisono.training.job import Job
from unisono.trust import Trust

pytestmark = pytest.mark.usefixtures("no_price")

RECIPE = Recipe.from_options(
    model="mlp:8", data="synthetic:classes=4,rows=64,features=8,test_rows=32", epochs=1, batch_size=16, ranks=1
)
STEPS = ["connect", "from_first", "prepare", "restore", "allocation", "from_first", "train", "left"]


class NotingHost(Host):
    """A supervised one that notes what it is asked for, and fails at a step."""

    def __init__(self, failing: str = "", error: Exception | None = None) -> None:
        self._inner, self.asked = SupervisedHost(), list[str]()
        self._failing, self._error = failing, error

    def _note(self, step: str) -> None:
        self.asked.append(step)
        if self._failing == step and self._error is not None:
            raise self._error

    @contextmanager
    def connect(self, recipe: Recipe) -> Iterator[Recipe]:
        self._note("connect")
        try:
            with self._inner.connect(recipe) as agreed:
                yield agreed
        finally:
            self.asked.append("left")

    def from_first(self, find: Callable[[], Value]) -> Value:
        self._note("from_first")
        return self._inner.from_first(find)

    def prepare(self, recipe: Recipe, trust: Trust) -> Job:
        self._note("prepare")
        return self._inner.prepare(recipe, trust)

    def restore(self, position: int, snapshot: Snapshot | None) -> None:
        self._note("restore")
        self._inner.restore(position, snapshot)

    def allocation(self) -> Allocation:
        self._note("allocation")
        return replace(self._inner.allocation(), notes=["a note of the host"])

    def train(self, record: Recorder | None, failover_place: FailoverPlace) -> dict[str, Any] | None:
        assert record is not None
        assert Path(failover_place.path) == record.path.resolve()
        self._note("train")
        return self._inner.train(record, failover_place)


def test_the_steps_of_a_run(tmp_path, capsys):
    host = NotingHost()
    course = Course(RECIPE.with_options(out=str(tmp_path / "run")), host)
    course.run()
    assert host.asked == STEPS
    assert course.path == tmp_path / "run"
    assert course.summary is not None
    assert course.summary["status"] == "finished"
    assert "a note of the host" in capsys.readouterr().out


@pytest.mark.parametrize("step", ["prepare", "restore", "allocation"])
def test_what_fails_before_the_record_is_opened_leaves_nothing(step, tmp_path):
    host = NotingHost(step, UnisonoError("no"))
    with pytest.raises(UnisonoError, match="no"):
        Course(RECIPE.with_options(out=str(tmp_path / "run")), host).run()
    assert host.asked == [*STEPS[: STEPS.index(step) + 1], "left"]
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_that_is_found_before_the_first_epoch_leaves_nothing(tmp_path):
    with pytest.raises(UserError, match="too little memory"):
        Course(
            RECIPE.with_options(out=str(tmp_path / "run")), NotingHost("train", UserError("too little memory"))
        ).run()
    assert list(tmp_path.iterdir()) == []


def test_a_rank_that_fails_is_told_with_what_was_reached(tmp_path):
    error = RankFailed(0, "was killed by SIGKILL")
    course = Course(RECIPE.with_options(out=str(tmp_path / "run")), NotingHost("train", error))
    with pytest.raises(UnisonoError, match=rf"^rank 0: was killed by SIGKILL\nWhat was reached is in {tmp_path}/run$"):
        course.run()
    assert course.summary is None


UNDER_MPIRUN = """
import sys, unisono
from unisono.environment.variables import detect
rank = detect().rank
model, data = {"right": "mlp:8", "wrong": "mlpx"}[sys.argv[1]], "synthetic:classes=4,rows=64,features=8,test_rows=32"
try:
    run = unisono.train(model=model, data=data, epochs=1, batch_size=16, out="run", quiet=True)
except unisono.UserError as error:
    print(f"rank {rank}: {error.shown} {error}".splitlines()[0], flush=True)
else:
    print(f"rank {rank}: {run.path.name} {run.summary.get('status')}", flush=True)
"""


@pytest.mark.skipif(not find_spec("mpi4py") or find_program("mpirun") is None, reason="mpi4py or mpirun is missing")
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
