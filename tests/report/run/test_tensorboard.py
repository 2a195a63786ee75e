"""Events are read back as TensorBoard reads them: records of length, checksum, data, checksum."""

import errno
import json
import os
import struct
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("tensorboardX")
from tensorboardX.crc32c import crc32c
from tensorboardX.proto.event_pb2 import Event

from support.cli.forked_command import forked
from support.report.run_records import rank, record
from unisono.errors import UserError
from unisono.recipe import Recipe
from unisono.report.run.tensorboard import EventFile, scalars
from unisono.runs.recorder import Recorder
from unisono.training.job import prepare


def masked(data: bytes) -> int:
    found = crc32c(data)
    return (((found >> 15) | (found << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def read(folder: Path) -> list[Event]:
    """All events of the files there, in their order; a wrong checksum fails."""
    events = []
    for path in sorted(folder.iterdir(), key=lambda path: int(path.name.rpartition(".")[2])):
        content = path.read_bytes()
        while content:
            header, (length,) = content[:8], struct.unpack("<Q", content[:8])
            data = content[12 : 12 + length]
            assert struct.unpack("<I", content[8:12])[0] == masked(header)
            assert struct.unpack("<I", content[12 + length : 16 + length])[0] == masked(data)
            events.append(Event.FromString(data))
            content = content[16 + length :]
    return events


def steps(folder: Path) -> list[int]:
    return [event.step for event in read(folder) if not event.file_version]


class Clock:
    """A second passes when somebody looks."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_an_epoch_is_on_the_disk_at_once(tmp_path):
    threads = threading.active_count()
    with closing(EventFile(Clock())) as events:
        assert not (tmp_path / "tb").exists()
        for epoch in (1, 2):
            events.add(record([rank(), rank(0.25)], epoch=epoch, test_loss=0.5), tmp_path / "tb")
            first, *epochs = read(tmp_path / "tb")
            assert first.file_version == "brain.Event:2"
            assert [event.step for event in epochs] == list(range(1, epoch + 1))
        assert threading.active_count() == threads  # the process that writes them forks
    values = {value.tag: value.simple_value for value in epochs[-1].summary.value}
    assert (values["loss/train"], values["loss/test"], values["wait_s/rank 1"]) == (1.0, 0.5, 0.25)


def test_what_has_no_value_has_no_event():
    found = scalars(record([rank()], train_accuracy=None, samples_per_s=7.0))
    assert "accuracy/train" not in found
    assert (found["run/samples_per_s"], found["run/lr"]) == (7.0, 0.1)
    assert not any("epoch" in tag.split("/")[1] and tag != "run/epoch_s" for tag in found)


def test_short_epochs_are_written_once_a_second_and_at_the_end(tmp_path):
    with closing(EventFile(clock=lambda: 0.0)) as events:
        for epoch in range(1, 5):
            events.add(record([rank()], epoch=epoch), tmp_path / "tb")
            assert steps(tmp_path / "tb") == [1]
    assert steps(tmp_path / "tb") == [1, 2, 3, 4]


class Full:
    """A writer on a disk without room."""

    def fileno(self) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    close = fileno


def test_a_disk_that_is_full_for_a_while_loses_nothing(tmp_path):
    with closing(EventFile(Clock())) as events:
        events.add(record([rank()], epoch=1), tmp_path / "tb")
        events._writer.close()
        events._writer = Full()
        with pytest.raises(OSError, match="No space left"):
            events.add(record([rank()], epoch=2), tmp_path / "tb")
        events.add(record([rank()], epoch=3), tmp_path / "tb")
    assert len(list((tmp_path / "tb").iterdir())) == 2  # nothing comes after what may be half a record
    assert steps(tmp_path / "tb") == [1, 2, 3]


def test_without_the_package_nothing_is_begun(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX.record_writer", None)
    with pytest.raises(UserError, match=r"pip install '\.\[tensorboard\]' in unisono's repository, or leave"):
        Recorder(prepare(Recipe.from_options(tensorboard=True, out=str(tmp_path / "run"))), "shm")
    assert not (tmp_path / "run").exists()


def test_a_mistake_that_is_found_at_the_start_leaves_no_directory(tmp_path):
    job = prepare(Recipe.from_options(tensorboard=True, out=str(tmp_path / "run")))
    with pytest.raises(UserError, match="too little memory"), Recorder(job, "shm"):
        raise UserError("too little memory")
    assert not (tmp_path / "run").exists()


def test_trouble_is_told_and_the_training_goes_on(tmp_path, capsys):
    job = prepare(Recipe.from_options(epochs=2, tensorboard=True, out=str(tmp_path / "run")))
    shares = [[0.5] * len(job.model().layout.names)] * 2
    with Recorder(job, "shm") as recorder:
        (recorder.path / "tensorboard").write_text("in the way")
        recorder.add(record([rank(), rank()], shares, epoch=1))
        told = capsys.readouterr()
        assert "events for TensorBoard cannot be written" in told.err
        assert "epoch 1/2" in told.out
        (recorder.path / "tensorboard").unlink()
        recorder.add(record([rank(), rank()], shares, epoch=2))
        assert "nothing is missing" in capsys.readouterr().err
        recorder.fail("enough")
    assert steps(recorder.path / "tensorboard") == [1, 2]


def test_a_real_run_writes_an_event_an_epoch(tmp_path):
    assert forked("train", "--epochs", "3", "--tensorboard", "--out", "run", cwd=tmp_path).returncode == 0
    metrics = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert steps(tmp_path / "run/tensorboard") == [1, 2, 3]
    events = read(tmp_path / "run/tensorboard")[1:]
    for event, line in zip(events, metrics, strict=True):
        values = {value.tag: value.simple_value for value in event.summary.value}
        assert values["loss/test"] == pytest.approx(line["test_loss"])
        assert values["accuracy/train"] == pytest.approx(line["train_accuracy"])
