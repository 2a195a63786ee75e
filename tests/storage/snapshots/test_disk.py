"""Every single call that changes the disk fails once, or is the process's last: what was there stays loadable."""

import errno
import os
from pathlib import Path

import pytest

from support.training.snapshot_cases import ERRORS, Watched, failure, is_exact, positions, put
from unisono.storage.snapshots.disk import PIECE_BYTES, REAL, write_file
from unisono.storage.snapshots.snapshot import listed, newest, verified
from unisono.storage.snapshots.writer import NotWritten

OLD, BEFORE, NEW = 10, 20, 30
"""Positions; with two to keep, the write of NEW removes OLD."""


def prepared(folder: Path) -> Path:
    for position in (OLD, BEFORE):
        put(folder, position)
    (folder / ".draft-dead").mkdir()
    (folder / ".draft-dead" / "params.safetensors").write_bytes(b"half")
    return folder


def calls_of_a_write(folder: Path) -> list[str]:
    watched = Watched(lambda call: False, "before", lambda: None)
    put(folder, NEW, disk=watched)
    return watched.calls


def killed_at(call: int, when: str, folder: Path) -> None:
    """A process writes a snapshot and ends at that call."""
    child = os.fork()
    if child == 0:
        try:
            put(folder, NEW, disk=Watched(lambda number: number == call, when, lambda: os._exit(9)))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9, "the child did not come to the call"


def check_nothing_lost(folder: Path, case: object) -> int:
    """The newest is whole and was asked for; the next write finds nothing in its way. Returns the newest's position."""
    found = newest(folder)
    assert found.rejected == [], f"{case}: something half-made has a name"
    assert found.snapshot.position in (BEFORE, NEW), case
    assert is_exact(found.snapshot), case
    assert len([verified(path) for path in listed(folder)]) >= 2, f"{case}: all that have a name are whole"
    assert put(folder, NEW + 1).problems == [], case
    assert len(list(folder.iterdir())) == 3, f"{case}: leftovers of {sorted(os.listdir(folder))}"
    assert is_exact(newest(folder).snapshot), case
    return found.snapshot.position


def test_a_write_makes_these_calls(tmp_path):
    assert calls_of_a_write(prepared(tmp_path)) == [
        "remove", "remove",  # what a killed writer left
        "mkdir", *["create", "write", "fsync"] * 4, "fsync", "rename", "fsync",
        "rename", *["remove"] * 5,  # the oldest
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("when", "number"), [*(("before", number) for number in ERRORS), ("within", errno.ENOSPC), ("after", errno.EIO)]
)
@pytest.mark.parametrize("for_good", [False, True], ids=["once", "from then on"])
def test_each_call_fails_in_turn(tmp_path, number, when, for_good):
    calls = calls_of_a_write(prepared(tmp_path / "counted"))
    committed = len(calls) - 6
    for k in range(1, len(calls) + 1):
        folder = prepared(tmp_path / str(k))
        watched = Watched(lambda call, k=k: call >= k if for_good else call == k, when, failure(number))
        case = f"call {k}, {calls[k - 1]}"
        try:
            written = put(folder, NEW, disk=watched)
            assert written.problems, f"{case}: nobody was told"
            assert all(os.strerror(number) in problem for problem in written.problems)
            assert k <= 2 or k > committed, f"{case}: written in spite of the error"
            assert newest(folder).snapshot.position == NEW
        except NotWritten as error:
            told = str(error)
            assert f"position {NEW} cannot be written: {folder}" in told, case
            assert os.strerror(number) in told, case
            assert for_good or 2 < k <= committed, f"{case}: {told}"
            assert set(positions(folder)) >= {OLD, BEFORE}, f"{case}: removed before the new one was safe"
            if not for_good:
                assert not [name for name in os.listdir(folder) if name.startswith(".draft")], case
        check_nothing_lost(folder, case)


@pytest.mark.parametrize("when", ["before", "within", "after"])
def test_each_call_is_the_last_of_a_killed_process(tmp_path, when):
    seen = set()
    for k, call in enumerate(calls_of_a_write(prepared(tmp_path / "counted")), 1):
        folder = prepared(tmp_path / str(k))
        killed_at(k, when, folder)
        seen.add(check_nothing_lost(folder, f"call {k}, {call}"))
    assert seen == {BEFORE, NEW}


def test_the_first_snapshot_of_a_run_that_is_killed(tmp_path):
    for k in range(1, len(calls_of_a_write(tmp_path / "counted")) + 1):
        folder = tmp_path / str(k)
        killed_at(k, "before", folder)
        found = newest(folder)
        assert found.rejected == []
        assert found.snapshot is None or is_exact(found.snapshot)
        put(folder, NEW)
        assert is_exact(newest(folder).snapshot)


def test_an_interrupt_leaves_nothing(tmp_path):
    def interrupt():
        raise KeyboardInterrupt

    folder = prepared(tmp_path / "x")
    with pytest.raises(KeyboardInterrupt):
        put(folder, NEW, disk=Watched(lambda call: call == 8, "within", interrupt))
    assert sorted(os.listdir(folder)) == [".lock", "000001-000000000010", "000002-000000000020"]
    check_nothing_lost(folder, "interrupt")


def test_directories_that_cannot_be_synced_are_taken_as_they_are(tmp_path):
    folder = prepared(tmp_path / "x")
    directories = [16, 18]  # of the draft, and of the folder
    put(folder, NEW, disk=Watched(lambda call: call in directories, "before", failure(errno.EINVAL)))
    assert newest(folder).snapshot.position == NEW


def test_a_write_that_takes_fewer_bytes_is_continued(tmp_path):
    class Short(Watched):
        def write(self, fd, data):
            self.calls.append("write")
            return REAL.write(fd, data[:7])

    short = Short(lambda call: False, "before", lambda: None)
    put(tmp_path, NEW, disk=short)
    assert short.calls.count("write") > 100
    assert is_exact(newest(tmp_path).snapshot)


def test_long_files_are_written_in_pieces(tmp_path):
    watched = Watched(lambda call: False, "before", lambda: None)
    write_file(watched, tmp_path / "x", bytes(2 * PIECE_BYTES + 1))
    assert watched.calls == ["create", "write", "write", "write", "fsync"]
    assert (tmp_path / "x").stat().st_size == 2 * PIECE_BYTES + 1


def test_a_folder_that_cannot_be_made_or_written_is_named(tmp_path):
    with pytest.raises(NotWritten, match=r"none/snapshots: No such file"):
        put(tmp_path / "none" / "snapshots", NEW)
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotWritten, match=r"file: File exists"):
        put(tmp_path / "file", NEW)
    assert (tmp_path / "file").read_text() == "x"
