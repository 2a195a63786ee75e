"""Damaged snapshots: every file cut, changed or gone is noticed and named, and the snapshot before it is used."""

import os
import re
from pathlib import Path

import pytest

from support.training.snapshot_cases import contents, is_exact, put
from unisono import resources
from unisono.errors import UserError
from unisono.storage.snapshots.snapshot import newest, require_newest

FILES = ["manifest.json", "params.safetensors", "state.safetensors", "buffers.safetensors"]


@pytest.fixture
def folder(tmp_path) -> Path:
    for position in (1, 2):
        put(tmp_path / "snapshots", position)
    return tmp_path / "snapshots"


def check_fallen_back(folder: Path, name: str, reason: str) -> None:
    found = newest(folder)
    (rejected,) = found.rejected
    assert rejected.path == folder / "000002-000000000002"
    assert re.match(rf"{re.escape(name)} (?:{reason})", rejected.reason), rejected.reason
    assert found.snapshot.position == 1
    assert is_exact(found.snapshot)


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_short_or_too_long(folder, name):
    path = folder / "000002-000000000002" / name
    whole = path.read_bytes()
    told = "does not hold what was written" if name == "manifest.json" else ""
    for length in {0, 1, 7, 8, 9, len(whole) // 2, len(whole) - 5, len(whole) - 1}:
        path.write_bytes(whole[:length])
        check_fallen_back(folder, name, told or f"is {length} bytes long; {len(whole)} were written$")
    for tail in (b"\0", b"\n", whole):
        path.write_bytes(whole + tail)
        check_fallen_back(folder, name, told or rf"is \d+ bytes long; {len(whole)} were written$")


@pytest.mark.parametrize("name", FILES)
def test_one_flipped_bit(folder, name):
    path = folder / "000002-000000000002" / name
    whole = path.read_bytes()
    places = range(8 * len(whole)) if name == "manifest.json" else range(0, 8 * len(whole), 61)
    for place in places[:: max(1, len(places) // 400)]:
        changed = bytearray(whole)
        changed[place // 8] ^= 1 << place % 8
        path.write_bytes(changed)
        check_fallen_back(folder, name, "does not hold what was written")


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_gone_or_no_file(folder, name):
    path = folder / "000002-000000000002" / name
    whole = path.read_bytes()
    path.unlink()
    check_fallen_back(folder, name, "is missing$")
    path.mkdir()
    check_fallen_back(folder, name, "is not a regular file$")
    path.rmdir()
    os.mkfifo(path)
    check_fallen_back(folder, name, "is not a regular file$")
    path.unlink()
    (folder.parent / "elsewhere").write_bytes(whole)
    path.symlink_to(folder.parent / "elsewhere")
    check_fallen_back(folder, name, "is a symbolic link$")


def test_files_of_two_snapshots_are_not_mixed(folder):
    first, second = folder / "000001-000000000001", folder / "000002-000000000002"
    for name in FILES:
        whole = (second / name).read_bytes()
        (second / name).write_bytes((first / name).read_bytes())
        if name == "buffers.safetensors":
            assert newest(folder).rejected == [], "it holds nothing, in both"
        elif name == "manifest.json":
            check_fallen_back(folder, name, "is that of position 1$")
        else:
            check_fallen_back(folder, name, "does not hold what was written")
        (second / name).write_bytes(whole)


def test_directories_that_are_none(folder):
    second = folder / "000002-000000000002"
    second.rename(folder.parent / "moved")
    second.symlink_to(folder.parent / "moved")
    check_fallen_back(folder, second.name, "is not a directory$")
    second.unlink()
    second.write_text("x")
    check_fallen_back(folder, second.name, "is not a directory$")
    second.unlink()
    second.mkdir()
    check_fallen_back(folder, "manifest.json", "is missing$")


def test_other_names_are_passed_over(folder):
    for name in ("000003-000000000003.bak", "3", "copy of 000003-000000000003", "٠٠٠٠٠٣-٠٠٠٠٠٠٠٠٠٠٠٣"):
        (folder / name).mkdir()
    (folder / "000002-000000000002" / "notes.txt").write_text("mine")
    assert newest(folder).rejected == []
    assert newest(folder).snapshot.position == 2


def test_none_is_usable(folder):
    (folder / "000001-000000000001" / "state.safetensors").unlink()
    (folder / "000002-000000000002" / "manifest.json").write_bytes(b"{}")
    before = contents(folder.parent)
    with pytest.raises(UserError) as raised:
        require_newest(folder)
    assert raised.value.exit_code == 2
    message = str(raised.value)
    assert message.splitlines()[0] == f"no snapshot in {folder} can be used:"
    assert "  000002-000000000002: manifest.json does not hold" in message
    assert "  000001-000000000001: state.safetensors is missing" in message
    assert message.index("000002") < message.index("000001")
    assert message.splitlines()[-1].startswith("HINT: nothing was changed")
    assert contents(folder.parent) == before


def test_damage_after_it_was_found_is_noticed_when_it_is_used(folder):
    snapshot = require_newest(folder)
    path = snapshot.path / "state.safetensors"
    changed = bytearray(path.read_bytes())
    changed[-1] ^= 1
    path.write_bytes(changed)
    with pytest.raises(UserError, match=rf"{snapshot.path}: state\.safetensors does not hold what was written"):
        snapshot.arrays("state")
    assert list(snapshot.arrays("params")) == ["10.W", "2.b", "2.A"]


def test_memory_is_looked_at_before_it_is_taken(folder, monkeypatch):
    monkeypatch.setattr(resources, "available_bytes", lambda: 3)
    with pytest.raises(UserError, match=r"params\.safetensors need .* of memory, 3 B are available"):
        require_newest(folder).arrays("params")


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "x").write_text("")
    with pytest.raises(UserError, match=r"x cannot be read: Not a directory\nHINT"):
        newest(tmp_path / "x")
