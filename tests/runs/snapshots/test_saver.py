"""Saving while a run goes on: what is saved is what the round left, whatever becomes of the disk or the writer."""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, final

import numpy as np
import pytest

from support.faults.trials import quiet, resume, run
from support.training.launched_runs import SMALL, every
from support.training.snapshot_waits import every_snapshot
from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.runs.early_end import Halted
from unisono.runs.snapshots import saver as saving
from unisono.runs.snapshots.saver import Saver, gather, restore_arrays
from unisono.runs.supervised_training import RunPlaces, SupervisedRun
from unisono.storage.background_writer import Answer, ThreadWriter, Writer
from unisono.storage.snapshots.snapshot import listed, require_newest, verified
from unisono.storage.snapshots.writer import NotWritten
from unisono.training.job import Job, prepare

pytestmark = pytest.mark.usefixtures("no_price")


@pytest.fixture(scope="module")
def job() -> Job:
    return prepare(every("2steps"))


def test_snapshots_are_made_when_they_are_due(tmp_path):
    """Each is of its own moment, and the way on from it leads to the same end. 3 steps an epoch, then its closing."""
    with every_snapshot():
        found = run(every("2steps"), RunPlaces(snapshots=tmp_path))
    found.check(quiet(SMALL))
    assert all(event["path"] for event in found.events)
    positions = [verified(path).position for path in reversed(listed(tmp_path))]
    assert positions == [event["position"] for event in found.events]
    assert positions == [2, 5, 7, 10, 13, 15, 16]  # 2, 4, 6 ... steps, and the end
    for path in listed(tmp_path):
        resume(SMALL, verified(path))


def test_a_snapshot_on_the_way_knows_the_evaluations_that_patience_counts(tmp_path):
    """Resumed between two of the three that end the run, it ends after the same one."""
    patient = SMALL.with_options(epochs=7, target_accuracy=0.01, patience=3)
    with every_snapshot():
        found = run(every("2steps", patient), RunPlaces(snapshots=tmp_path))
    assert found.sha256 == quiet(SMALL.with_options(epochs=3)).sha256
    assert 5 in {verified(path).position for path in listed(tmp_path)}  # in the second epoch
    for path in listed(tmp_path):
        resume(patient, verified(path))


SOMETIMES = """
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.always, self.sometimes = nn.Linear(5, 3), nn.Linear(5, 3)
    def forward(self, x):
        z = self.always(x)
        return z + self.sometimes(x) if len(x) == 2 or x[0, 0] > 0.6 else z
"""


def test_a_snapshot_on_the_way_knows_the_steps_that_each_parameter_has_missed(tmp_path):
    """Adam counts the steps of each; some are left out by every shard of a batch."""
    pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    (tmp_path / "sometimes.py").write_text(SOMETIMES)
    np.savez(tmp_path / "few.npz", train_x=rng.standard_normal((77, 5)), train_y=rng.integers(0, 3, 77))
    names = {"model": f"{tmp_path}/sometimes.py:Net", "data": f"{tmp_path}/few.npz"}
    recipe = Recipe.from_options(
        **names, ranks=2, shards=2, batch_size=11, epochs=1, optimizer="adam", lr=0.05, keep=99
    )
    with every_snapshot():
        run(every("4steps", recipe), RunPlaces(snapshots=tmp_path / "snapshots"))
    early = verified(listed(tmp_path / "snapshots")[-1])
    missed = early.arrays("tables")["missed"][early.position % 2].tolist()
    assert (early.position, len(set(missed))) == (4, 2)  # `sometimes` has missed some, `always` none
    resume(recipe, early)


def test_the_data_are_hashed_once_and_not_for_every_snapshot(tmp_path, monkeypatch):
    hashed = tmp_path / "hashed"

    def sha256(given: Job) -> str:
        with open(hashed, "a") as file:  # by whichever process
            file.write("once\n")
        return "of the data"

    monkeypatch.setattr(Job, "data_sha256", property(sha256))
    with every_snapshot():
        found = run(every("2steps"), RunPlaces(snapshots=tmp_path / "snapshots"))
    assert len(found.events) > 3
    assert hashed.read_text() == "once\n"
    assert {verified(path).facts["data"] for path in listed(tmp_path / "snapshots")} == {"of the data"}


def test_snapshots_of_epochs_lead_to_the_same_end_and_to_more_epochs(tmp_path):
    with every_snapshot():
        run(every("1epochs"), RunPlaces(snapshots=tmp_path))
    assert {verified(path).position for path in listed(tmp_path)} == {4, 8, 12, 16}
    snapshot = require_newest(tmp_path)
    assert snapshot.facts["step"] == 4  # after the closing round
    for recipe in (SMALL, SMALL.with_options(epochs=6)):
        resume(recipe, snapshot)


def test_snapshots_by_the_clock(tmp_path):
    """More often than the supervisor looks; the run lasts until there is one."""
    found = run(every("0.001s", epochs=60, eval_every=60, keep=2), RunPlaces(snapshots=tmp_path))
    assert "snapshot" in [event["kind"] for event in found.events]


def test_a_writer_that_is_killed_costs_a_snapshot_and_nothing_else(tmp_path, monkeypatch):
    real, first = saving.write, os.getpid()

    def write(folder: Path, position: int, *rest: Any, **options: Any) -> Any:
        if os.getpid() != first and not (tmp_path / "killed").exists():
            (tmp_path / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return real(folder, position, *rest, **options)

    monkeypatch.setattr(saving, "write", write)
    with every_snapshot():
        found = run(every("3steps"), RunPlaces(snapshots=tmp_path / "snapshots"))
    found.check(quiet(SMALL))
    assert [event["path"] for event in found.events].count(None) == 1
    assert "was killed by SIGKILL" in found.events[0]["cause"]
    assert len(found.events) > 1  # it is tried again


def test_a_writer_that_hangs_is_named_and_ended(tmp_path, monkeypatch):
    real, first = saving.write, os.getpid()

    def write(*given: Any, **options: Any) -> Any:
        if os.getpid() != first and not (tmp_path / "stopped").exists():
            (tmp_path / "stopped").touch()
            os.kill(os.getpid(), signal.SIGSTOP)
        return real(*given, **options)

    monkeypatch.setattr(saving, "write", write)
    monkeypatch.setattr(saving, "LIMIT_S", 1.0)
    end_writer = Saver._end_writer

    def end(saver: Saver) -> bool:
        ended = end_writer(saver)
        saver._limit_s = 120.0  # the others do not hang, however busy the machine is
        return ended

    monkeypatch.setattr(Saver, "_end_writer", end)
    with every_snapshot():
        found = run(every("3steps"), RunPlaces(snapshots=tmp_path / "snapshots"))
    found.check(quiet(SMALL))
    assert re.search(r"its writer was not done after \d+ s and was ended", found.events[0]["cause"])
    assert [event["path"] for event in found.events].count(None) == 1  # the others are written


@final
class Slow(Writer):
    """Cannot be ended; done when it was asked `times` times whether it is."""

    def __init__(self, times: int) -> None:
        self._times, self._inner, self._done, self.closed = times, ThreadWriter(), threading.Event(), False

    @property
    def busy(self) -> bool:
        return self._inner.busy

    def start(self, work: Callable[[], str]) -> None:
        self._inner.start(lambda: str(self._done.wait(60.0)) and work())

    def ended(self, timeout_s: float) -> Answer | None:
        self._times -= 1
        if self._times <= 0:
            self._done.set()
        return self._inner.ended(10.0 if self._done.is_set() else 0.0)

    def drop(self) -> bool:
        return self._inner.drop()

    def close(self) -> None:
        self._done.set()
        self._inner.ended(10.0)
        self.closed = True


def saver_of(job: Job, folder: Path, writer: Writer, events: list[dict[str, Any]]) -> Saver:
    return Saver(
        job,
        job.model(),
        SupervisedRun(job, RunPlaces())._shared,
        folder,
        lambda event: events.append(event.to_json()),
        writer,
    )


def test_the_last_snapshot_waits_for_a_writer_that_cannot_be_ended(job, tmp_path, monkeypatch):
    """It holds the lock: whoever forgets it is refused."""
    monkeypatch.setattr(saving, "WAIT_S", 0.0)
    events: list[dict[str, Any]] = []
    with saver_of(job, tmp_path, Slow(3), events) as saver:
        saver.save_copy(2)
        path = saver.save_last(5)
    assert [event["position"] for event in events if event["path"]] == [2, 5]
    assert str(require_newest(tmp_path).path) == path


def test_a_copy_that_is_told_twice_is_written_once(job, tmp_path):
    """The rank that told of it died before the round's end, and another one tells it again."""
    events: list[dict[str, Any]] = []
    with saver_of(job, tmp_path, ThreadWriter(), events) as saver:
        for position in (2, 2, 1):
            saver.save_copy(position)
            saver._wait(60.0)
    assert [event["position"] for event in events] == [2]
    assert [verified(path).position for path in listed(tmp_path)] == [2]


def test_a_writer_that_never_ends_is_said_to_and_not_waited_for(job, tmp_path, monkeypatch):
    for name in ("WAIT_S", "LAST_WAIT_S"):
        monkeypatch.setattr(saving, name, 0.0)
    writer = Slow(1000)
    with saver_of(job, tmp_path, writer, []) as saver:
        saver.save_copy(2)
        with pytest.raises(UserError, match="the last snapshot was not begun: the one before it is being written"):
            saver.save_last(5)
    assert writer.closed


def test_whoever_is_to_end_at_once_does_not_wait_for_the_writer(job, tmp_path, monkeypatch):
    def interrupted() -> None:
        with saver_of(job, tmp_path, writer, []) as saver:
            saver.save_copy(2)
            monkeypatch.setattr(saver, "_hear", lambda timeout_s: pytest.fail("waited"))
            raise KeyboardInterrupt

    writer = Slow(1000)
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert writer.closed


def test_signals_to_everybody_do_not_end_the_writer(tmp_path, monkeypatch):
    real, first = saving.write, os.getpid()

    def write(*given: Any, **options: Any) -> Any:
        if os.getpid() != first:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
                os.kill(os.getpid(), number)
        return real(*given, **options)

    monkeypatch.setattr(saving, "write", write)
    found = run(every("3steps"), RunPlaces(snapshots=tmp_path))
    assert all(event["path"] for event in found.events)


@pytest.mark.parametrize("trouble", ["full", "read-only"])
def test_a_disk_that_takes_nothing_more(small_disk, trouble):
    """Training goes on to its end, says so each time, and what was there stays loadable."""
    disk = small_disk(256)
    run(every("3steps"), RunPlaces(snapshots=disk / "snapshots"))
    kept = require_newest(disk / "snapshots")
    if trouble == "full":
        with open(disk / "ballast", "wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(1024)):
                pass
    else:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    found = run(every("3steps"), RunPlaces(snapshots=disk / "snapshots"))
    found.check(quiet(SMALL))
    assert found.events
    for event in found.events:
        assert event["path"] is None
        assert ("No space left" if trouble == "full" else "Read-only file system") in event["cause"]
    assert require_newest(disk / "snapshots").path == kept.path
    resume(SMALL, kept)


def test_an_end_that_cannot_be_saved_is_a_failure(tmp_path, monkeypatch):
    """The run was to be resumed, and cannot be: not the exit code of one that can."""

    def write(*given: Any, **options: Any) -> Any:
        raise NotWritten("the snapshot cannot be written: No space left on device", hint="make room")

    monkeypatch.setattr(saving, "write", write)
    monkeypatch.setattr("unisono.storage.fallback_writer.PATIENCE_S", 0.0)
    monkeypatch.setattr(SupervisedRun, "_live", lambda *given: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(Halted, match=r"no rank is left: .*\nthe snapshot cannot be written") as caught:
        run(SMALL.with_options(respawn=False), RunPlaces(snapshots=tmp_path))
    assert (caught.value.exit_code, caught.value.snapshot) == (1, "")


def test_a_recipe_that_needs_what_the_snapshot_lacks_is_refused(tmp_path):
    plain = SMALL.with_options(optimizer="sgd", lr=0.1)
    run(every("5steps", plain), RunPlaces(snapshots=tmp_path))
    supervised_run = SupervisedRun(prepare(plain.with_options(momentum=0.9)), RunPlaces())
    with pytest.raises(UserError, match=r"does not fit this recipe: state: none then, \{'momentum': 'float32 \("):
        supervised_run.resume(require_newest(tmp_path))


def test_a_snapshot_of_before_steps_were_counted_by_parameter(job):
    supervised_run, model = SupervisedRun(job, RunPlaces()), job.model()
    lasting = supervised_run._shared.lasting

    class Old:
        def arrays(self, group: str) -> dict[str, np.ndarray]:
            found = gather(model, job.optimizer, lasting)[group]
            return {name: np.ones_like(array) for name, array in found.items() if name != "missed"}

    restore_arrays(model, job.optimizer, lasting, Old())
    assert lasting.steps.all()
    assert not lasting.missed.any()


def test_without_a_folder_nothing_is_saved():
    assert run(every("1steps")).events == []
