"""Whoever is left saves the run, once; nothing where the run directory is not, or is another one."""

import numpy as np
import pytest

from unisono.runs.snapshots import failover
from unisono.runs.snapshots.failover import FailoverPlace, save_failover
from unisono.storage.rundir import LOCK
from unisono.storage.snapshots.snapshot import newest
from unisono.storage.snapshots.writer import NotWritten, write

ARRAYS = {"params": {"w": np.ones(3, np.float32)}}


@pytest.fixture
def failover_place(tmp_path):
    """A run directory that this machine sees."""
    (tmp_path / LOCK).write_text("ours")
    return FailoverPlace(str(tmp_path), "ours")


class Saver:
    """Writes as the real one; `failures` times another machine is at it, and done when asked again."""

    def __init__(self, failures: int = 0, others: int | None = None) -> None:
        self.failures, self.others, self.calls = failures, others, 0

    def save_last(self, position, folder):
        self.calls += 1
        if self.calls <= self.failures:
            if self.others is not None:
                write(folder, self.others, ARRAYS, {})
            raise NotWritten("another process is writing")
        return str(write(folder, position, ARRAYS, {}).path)


def test_without_the_run_directory_nothing_is_saved(tmp_path):
    saver = Saver()
    assert save_failover(saver, FailoverPlace(str(tmp_path / "run"), "ours"), 7) == ""
    assert (saver.calls, list(tmp_path.iterdir())) == (0, [])


@pytest.mark.parametrize("token", ["", "theirs"])
def test_a_directory_of_the_same_name_that_is_not_the_runs_is_left_alone(token, tmp_path, failover_place):
    """On machines that share no file system, another run may be there, whose snapshots look as good."""
    (tmp_path / LOCK).write_text(token)
    write(tmp_path / "snapshots", 9, ARRAYS, {})
    saver = Saver()
    assert save_failover(saver, failover_place, 7) == ""
    assert saver.calls == 0


@pytest.mark.parametrize(("there", "newest_at"), [((), 7), ((5,), 7), ((7,), 7), ((9,), 9)])
def test_what_is_not_saved_yet_is(there, newest_at, tmp_path, failover_place):
    folder = tmp_path / "snapshots"
    for position in there:
        write(folder, position, ARRAYS, {})
    saver = Saver()
    path = save_failover(saver, failover_place, 7)
    assert newest(folder).require().position == newest_at
    assert path == str(newest(folder).require().path)
    assert saver.calls == (newest_at == 7 and there != (7,))


def test_another_machine_that_writes_is_waited_for(failover_place, monkeypatch):
    monkeypatch.setattr(failover, "_LOOK_S", 0.0)
    saver = Saver(failures=1, others=7)
    assert save_failover(saver, failover_place, 7).endswith("-000000000007")
    assert saver.calls == 1
    further = Saver(failures=1, others=7)
    assert save_failover(further, failover_place, 8).endswith("-000000000008")


def test_a_run_that_somebody_has_gone_on_with_meanwhile_is_left_to_them(tmp_path, failover_place, monkeypatch):
    monkeypatch.setattr(failover, "_LOOK_S", 0.0)

    class Late(Saver):
        def save_last(self, position, folder):
            (tmp_path / LOCK).write_text("theirs")
            return super().save_last(position, folder)

    saver = Late(failures=1)
    assert save_failover(saver, failover_place, 7) == ""
    assert saver.calls == 1


def test_a_disk_that_does_not_let_it_is_told(failover_place, monkeypatch):
    monkeypatch.setattr(failover, "_LOOK_S", 0.0)
    monkeypatch.setattr(failover, "PATIENCE_S", 0.0)
    with pytest.raises(NotWritten):
        save_failover(Saver(failures=10**6), failover_place, 7)
