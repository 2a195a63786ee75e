"""The retrying writer: lines that a disk does not take are written later, once, and no file ends in half of one."""

import errno
import io
import os
import shutil
from pathlib import Path

import pytest

from unisono.files import append_file, write_file
from unisono.storage import retrying_writer as module
from unisono.storage.retrying_writer import RetryingWriter


def add(writer: RetryingWriter, epoch: int) -> None:
    text = f"the line of epoch {epoch}\n"
    writer.add(epoch, {"table": text, "notes": text}, headers={"table": "its header\n"})


def contents(path: Path) -> dict[str, str]:
    return {entry.name: entry.read_text() for entry in path.iterdir()}


def written(*epochs: int) -> dict[str, str]:
    """What a directory holds when the lines of these epochs are there."""
    text = "".join(f"the line of epoch {epoch}\n" for epoch in epochs)
    return {"table": "its header\n" + text, "notes": text}


class Disk:
    """Stands for `os.write`; takes half of what it is given, then refuses, while `number` is set."""

    def __init__(self) -> None:
        self.number = 0
        self._real = os.write

    def write(self, fd: int, data: memoryview) -> int:
        if not self.number:
            return self._real(fd, data)
        if len(data) > 8:
            return self._real(fd, data[: len(data) // 2])
        raise OSError(self.number, os.strerror(self.number))


@pytest.fixture
def disk(monkeypatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(os, "write", made.write)
    return made


@pytest.mark.parametrize(
    ("number", "hint"), [(errno.ENOSPC, "make room"), (errno.EDQUOT, "quota"), (errno.EIO, "system's log")]
)
def test_what_finds_no_room_is_written_when_there_is_some(tmp_path, disk, number, hint):
    writer = RetryingWriter(tmp_path)
    add(writer, 1)
    disk.number = number
    for epoch in (2, 3):
        add(writer, epoch)
        assert contents(tmp_path) == written(1)  # no half lines
    told = f"{tmp_path} cannot be written: {os.strerror(number)}; missing: table from epoch 2 on, notes from epoch 2 on"
    assert writer.trouble.startswith(told)
    assert hint in writer.trouble
    disk.number = 0
    add(writer, 4)
    assert (writer.trouble, writer.missing) == ("", [])
    assert contents(tmp_path) == written(1, 2, 3, 4)


def test_room_at_the_very_end_is_enough(tmp_path, disk):
    writer = RetryingWriter(tmp_path)
    disk.number = errno.ENOSPC
    add(writer, 1)
    assert contents(tmp_path) == {}  # not even empty files
    disk.number = 0
    writer.flush()
    assert contents(tmp_path) == written(1)
    assert writer.error is None


def test_a_failure_that_is_told_late_does_not_double_lines(tmp_path, monkeypatch):
    """Network file systems say on closing that there was no room; some of it may be there all the same."""
    writer = RetryingWriter(tmp_path)
    add(writer, 1)

    class Late(io.FileIO):
        def close(self) -> None:
            super().close()
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    def opened(path: Path) -> Late:
        with append_file(path) as file:
            return Late(os.dup(file.fileno()), "a")

    with monkeypatch.context() as patched:
        patched.setattr(module, "append_file", opened)
        add(writer, 2)
    assert "quota" in writer.trouble
    add(writer, 3)
    assert contents(tmp_path) == written(1, 2, 3)


def test_a_directory_that_was_removed_and_made_again(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    writer = RetryingWriter(run)
    add(writer, 1)
    shutil.rmtree(run)
    add(writer, 2)
    assert "No such file or directory" in writer.trouble
    assert "HINT: the directory was removed or moved: make it again" in writer.trouble
    assert not run.exists()
    run.mkdir()
    add(writer, 3)
    assert contents(run) == written(2, 3)


def test_cut_drops_lines_and_the_half_of_one(tmp_path):
    (tmp_path / "table").write_text("its header\nthe line of epoch 1\nthe line of epoch 2\nthe li")
    writer = RetryingWriter(tmp_path)
    writer.cut("table", lambda number, line: "2" not in line)
    writer.cut("notes", lambda number, line: True)  # is not there
    assert contents(tmp_path) == {"table": written(1)["table"]}
    add(writer, 2)
    assert contents(tmp_path)["table"] == written(1, 2)["table"]


def test_a_file_that_cannot_be_made_is_missing_and_the_old_one_stays(tmp_path, monkeypatch):
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    writer = RetryingWriter(tmp_path)
    writer.keep("summary", lambda: write_file(tmp_path / "summary", "old"))
    monkeypatch.setattr(os, "fsync", full)
    writer.keep("summary", lambda: write_file(tmp_path / "summary", "new"))
    assert writer.missing == ["summary"]
    assert "make room" in writer.trouble
    assert contents(tmp_path) == {"summary": "old"}
