"""Whoever is left saves the run, once; nothing where the run directory is not."""

import numpy as np
import pytest

from unisono.train import rescuing
from unisono.train.rescuing import rescue
from unisono.train.snapshots.finding import newest
from unisono.train.snapshots.writing import NotWritten, write

ARRAYS = {"params": {"w": np.ones(3, np.float32)}}


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
    assert rescue(saver, tmp_path / "run" / "snapshots", 7) == ""
    assert (saver.calls, list(tmp_path.iterdir())) == (0, [])


@pytest.mark.parametrize(("there", "newest_at"), [((), 7), ((5,), 7), ((7,), 7), ((9,), 9)])
def test_what_is_not_saved_yet_is(there, newest_at, tmp_path):
    folder = tmp_path / "snapshots"
    for position in there:
        write(folder, position, ARRAYS, {})
    saver = Saver()
    path = rescue(saver, folder, 7)
    assert newest(folder).require().position == newest_at
    assert path == str(newest(folder).require().path)
    assert saver.calls == (newest_at == 7 and there != (7,))


def test_another_machine_that_writes_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(rescuing, "_LOOK_S", 0.0)
    saver = Saver(failures=1, others=7)
    assert rescue(saver, tmp_path / "snapshots", 7).endswith("-000000000007")
    assert saver.calls == 1
    further = Saver(failures=1, others=7)
    assert rescue(further, tmp_path / "snapshots", 8).endswith("-000000000008")


def test_a_disk_that_does_not_let_it_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(rescuing, "_LOOK_S", 0.0)
    monkeypatch.setattr(rescuing, "PATIENCE_S", 0.0)
    with pytest.raises(NotWritten):
        rescue(Saver(failures=10**6), tmp_path / "snapshots", 7)
