"""What must not be lost, on a disk that takes nothing more: room is made, another place is found, the disk is tried
again."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from unisono.storage import fallback_writer
from unisono.storage.fallback_writer import NotWritten, Place, places, write_with_fallback
from unisono.storage.snapshots.snapshot import listed, require_newest
from unisono.storage.snapshots.writer import prune, write


@pytest.fixture(autouse=True)
def impatient(monkeypatch) -> None:
    """A folder is tried three times more, without waiting, and then given up."""
    ticks = iter(range(1000))
    clock = SimpleNamespace(monotonic=lambda: float(next(ticks)), sleep=lambda s: None)
    monkeypatch.setattr(fallback_writer, "time", clock)
    monkeypatch.setattr(fallback_writer, "PATIENCE_S", 4.0)
    monkeypatch.setattr(fallback_writer, "SAFE_PATIENCE_S", 4.0)


class Disk:
    """Its folders refuse as often as they are told to."""

    def __init__(self, home: Path, refusals: int, number: int = errno.ENOSPC) -> None:
        self.home, self.refusals, self.number = home, refusals, number
        self.tries: list[Path] = []

    def write(self, folder: Path) -> Path:
        self.tries.append(folder)
        if folder == self.home and len([one for one in self.tries if one == self.home]) <= self.refusals:
            raise NotWritten("w cannot be written: no", hint="room", number=self.number)
        (folder / "w").write_text("learnt")
        return folder / "w"


@pytest.fixture
def home(tmp_path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.fixture
def other(tmp_path, monkeypatch) -> Path:
    (tmp_path / "other").mkdir()
    monkeypatch.setattr(fallback_writer, "places", lambda home: [tmp_path / "other"])
    return tmp_path / "other"


def no_room() -> bool:
    return False


def unasked() -> bool:
    raise AssertionError("room was to be made")


def kept(disk: Disk, make_room: Callable[[], bool] = no_room) -> tuple[Place, list[str]]:
    told: list[str] = []
    return write_with_fallback(disk.write, disk.home, 7, make_room, told.append), told


def test_a_disk_with_room_is_written_once(home, other):
    disk = Disk(home, 0)
    assert kept(disk, unasked) == (Place(home / "w"), [])
    assert disk.tries == [home]


def test_room_that_is_made_is_enough(home, other):
    disk = Disk(home, 1)
    assert kept(disk, lambda: True) == (Place(home / "w"), [])
    assert disk.tries == [home, home]


@pytest.mark.parametrize("number", [errno.EROFS, errno.EIO, None])
def test_room_is_made_on_a_full_disk_alone(home, other, number):
    place, _ = kept(Disk(home, 99, number), unasked)
    assert place.path.read_text() == "learnt"


def test_it_is_safe_elsewhere_before_anybody_waits_and_comes_home_when_there_is_room(home, other):
    disk = Disk(home, 3)
    place, told = kept(disk)
    assert place == Place(home / "w")
    (elsewhere,) = {one for one in disk.tries if one != home}
    assert elsewhere.parents[1] == other
    assert disk.tries == [home, elsewhere, home, home, home]
    assert told == [f"w cannot be written: no; it is safe in {elsewhere / 'w'}, and {home} is tried again for 4 s"]
    assert list(other.iterdir()) == []  # the copy is not needed any more


def test_a_disk_that_stays_full_leaves_it_elsewhere(home, other):
    place, _ = kept(Disk(home, 99))
    assert place.cause == "w cannot be written: no"
    assert place.path.read_text() == "learnt"
    assert place.path.parent.name == "run"
    assert place.path.is_relative_to(other)
    assert os.stat(place.path.parents[1]).st_mode & 0o077 == 0  # of others' business
    assert list(home.iterdir()) == []


def test_nothing_takes_it(home, monkeypatch):
    monkeypatch.setattr(fallback_writer, "places", lambda home: [])
    told: list[str] = []
    with pytest.raises(NotWritten, match="w cannot be written: no"):
        write_with_fallback(Disk(home, 99).write, home, 7, no_room, told.append)
    assert told == [f"w cannot be written: no; no other place takes it, and {home} is tried again for 4 s"]


def test_a_place_without_room_or_that_refuses_is_passed_over(home, tmp_path, monkeypatch):
    for name in ("small", "broken", "good"):
        (tmp_path / name).mkdir()
    others = [tmp_path / name for name in ("small", "broken", "good")]
    monkeypatch.setattr(fallback_writer, "places", lambda home: others)
    monkeypatch.setattr(fallback_writer, "_free_bytes", lambda place: 0 if place.name == "small" else 1 << 30)
    disk = Disk(home, 99)

    def write_unless_broken(folder: Path) -> Path:
        if folder.is_relative_to(tmp_path / "broken"):
            raise NotWritten("also full")
        return disk.write(folder)

    place = write_with_fallback(write_unless_broken, home, 7, no_room, lambda text: None)
    assert place.path.is_relative_to(tmp_path / "good")
    assert [list((tmp_path / name).iterdir()) for name in ("small", "broken")] == [[], []]


def test_other_file_systems_are_found_the_nearest_first(small_disk, tmp_path):
    disk = small_disk(64)
    (disk / "runs" / "mine").mkdir(parents=True)
    found = list(places(disk / "runs" / "mine"))
    assert found[0] == tmp_path
    own = os.stat(disk).st_dev
    assert all(os.stat(place).st_dev != own for place in found)
    assert list(places(disk / "runs" / "gone" / "mine")) == found  # also of a directory that is no more


def test_a_snapshot_that_is_moved_home_is_the_newest_there(tmp_path):
    home, elsewhere, arrays = tmp_path / "home", tmp_path / "elsewhere", {"params": {"W": np.ones(3, np.float32)}}
    for position in (3, 5):
        write(home, position, arrays, {})
    path = write(elsewhere, 7, arrays, {}, after=home).path
    path.rename(home / path.name)
    assert require_newest(home).position == 7


def test_old_snapshots_make_room_and_the_newest_stays(small_disk):
    disk = small_disk(256)
    for position in range(1, 4):
        write(disk, position, {"params": {"W": np.full(15000, position, np.float32)}}, {}, keep=9)

    def save(folder: Path) -> Path:
        try:
            (folder / "weights").write_bytes(bytes(120 << 10))
        except OSError as error:
            raise NotWritten("full", number=error.errno) from None
        return folder / "weights"

    with pytest.raises(NotWritten):
        save(disk)
    (disk / "weights").unlink()
    assert write_with_fallback(save, disk, 7, lambda: prune(disk), lambda text: None) == Place(disk / "weights")
    assert require_newest(disk).position == 3
    assert len(listed(disk)) == 1
    assert not prune(disk)  # the newest is never removed
