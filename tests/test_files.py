"""Files: regular ones only, links refused, whole or not at all, nothing left behind."""

import errno
import os
import socket
from pathlib import Path

import pytest

from unisono.errors import UserError
from unisono.files import (
    WRONG_KINDS,
    append_file,
    check_entry,
    create_file,
    expand_user,
    is_inside,
    lock_file,
    make_folder,
    move_file,
    open_file,
    read_file,
    remove_drafts,
    write_all,
    write_file,
)

SECRET = b"not yours\n"


@pytest.fixture
def outside(tmp_path):
    path = tmp_path / "outside"
    path.write_bytes(SECRET)
    return path


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    return path


def put(kind: str, path: Path, outside: Path) -> None:
    if kind == "link":
        path.symlink_to(outside)
    elif kind == "dangling link":
        path.symlink_to(outside.with_name("made by us"))
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        here = os.getcwd()
        os.chdir(path.parent)  # names of sockets are short
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
        os.chdir(here)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "directory":
        path.mkdir()


KINDS = ["link", "dangling link", "pipe", "socket", "device", "directory"]
WRITERS = {
    "write": lambda path: write_file(path, b"x"),
    "create": lambda path: create_file(path, b"x"),
    "append": lambda path: append_file(path).close(),
    "lock": lambda path: lock_file(path).close(),
}


def test_homes_are_found_and_those_of_nobody_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expand_user("~/a") == tmp_path / "a"
    with pytest.raises(UserError, match=r"~nobody-at-all/a: there is no home directory ~nobody-at-all\nHINT: set HOME"):
        expand_user("~nobody-at-all/a")


@pytest.mark.parametrize(
    ("path", "folder", "found"),
    [
        ("/a/b", "/a", True), ("/a", "/a", True), ("/ab", "/a", False), ("/a", "/", True), ("/a", "/a/b", False),
        ("/a", "", False),
    ],
)  # fmt: skip
def test_what_lies_in_a_directory(path, folder, found):
    assert is_inside(path, folder) is found


@pytest.mark.timeout(20)
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_but_a_regular_file_is_written(kind, writer, run, outside):
    path = run / "recipe.toml"
    put(kind, path, outside)
    with pytest.raises(OSError, match=r"link|regular|directory|exists") as found:
        WRITERS[writer](path)
    assert found.value.filename in (str(path), path.name)
    assert outside.read_bytes() == SECRET
    assert not outside.with_name("made by us").exists()
    assert os.listdir(run) == ["recipe.toml"]


def test_a_file_with_a_second_name_is_copied_before_it_grows(run, outside):
    os.link(outside, run / "events.jsonl")
    for line in (b"1\n", b"2\n"):
        with append_file(run / "events.jsonl") as file:
            file.write(line)
    assert (run / "events.jsonl").read_bytes() == SECRET + b"1\n2\n"
    assert outside.read_bytes() == SECRET
    assert os.listdir(run) == ["events.jsonl"]


def test_writing_leaves_a_hard_link_alone(run, outside):
    os.link(outside, run / "recipe.toml")
    write_file(run / "recipe.toml", "new")
    assert (run / "recipe.toml").read_text() == "new"
    assert outside.read_bytes() == SECRET


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "directory"])
def test_only_regular_files_are_read(kind, run, outside):
    put(kind, run / "data", outside)
    with pytest.raises(OSError, match=r"regular|directory"):
        read_file(run / "data", 100)


def test_links_are_read_only_where_they_may_be(run, outside):
    (run / "data").symlink_to(outside)
    assert read_file(run / "data", 100) == SECRET
    with pytest.raises(OSError, match="link"):
        read_file(run / "data", 100, follow_links=False)


@pytest.mark.parametrize("extra", [0, 1])
def test_a_file_that_is_too_long_is_refused(extra, run):
    (run / "long").write_bytes(b"a" * (13 + extra))
    if extra:
        with pytest.raises(OSError, match="13 bytes") as found:
            read_file(run / "long", 13)
        assert found.value.errno == errno.EFBIG
    else:
        assert read_file(run / "long", 13) == b"a" * 13


@pytest.mark.parametrize("writer", [write_file, create_file])
def test_a_folder_that_is_a_link_is_refused(writer, run, tmp_path):
    away = tmp_path / "away"
    away.mkdir()
    (run / "log").symlink_to(away)
    with pytest.raises(OSError, match="link"):
        writer(run / "log" / "rank-0.log", "x", within=run)
    with pytest.raises(OSError, match="link"):
        append_file(run / "log" / "rank-0.log", within=run)
    with pytest.raises(OSError, match="link"):
        make_folder(run / "log", within=run)
    assert os.listdir(away) == []


def test_the_directory_that_was_named_may_be_a_link(run, tmp_path):
    (tmp_path / "latest").symlink_to(run)
    write_file(tmp_path / "latest" / "a", "1", within=tmp_path / "latest")
    make_folder(tmp_path / "latest" / "log")
    write_file(tmp_path / "latest" / "log" / "b", "2", within=tmp_path / "latest")
    assert (run / "a").read_text() + (run / "log" / "b").read_text() == "12"


def half(file):
    file.write(b"half")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_fails_half_way_leaves_what_was_there(run):
    (run / "a").write_text("before")
    with pytest.raises(OSError, match="No space") as found:
        write_file(run / "a", half)
    assert (found.value.errno, found.value.filename) == (errno.ENOSPC, str(run / "a"))
    assert (run / "a").read_text() == "before"
    with pytest.raises(OSError, match="No space"):
        create_file(run / "b", half)
    assert os.listdir(run) == ["a"]


@pytest.mark.parametrize("links", [True, False], ids=["with hard links", "without"])
def test_a_file_that_is_made_once_is_not_seen_before_it_is_complete(links, run, monkeypatch):
    seen = []

    def content(file):
        seen.append((run / "a").exists())
        file.write(b"13")

    def refuse(*given, **more):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    create_file(run / "a", content, mode=0o600)
    assert seen == ([False] if links else [False, True])
    assert [(path.name, path.read_bytes(), path.stat().st_mode & 0o777) for path in run.iterdir()] == [
        ("a", b"13", 0o600)
    ]
    with pytest.raises(FileExistsError):
        create_file(run / "a", b"17")
    assert [path.read_bytes() for path in run.iterdir()] == [b"13"]


def test_drafts_of_the_killed_are_cleared(run):
    def die(file):
        file.write(b"half")
        file.flush()
        os._exit(0)

    pid = os.fork()
    if pid == 0:
        write_file(run / "weights.safetensors", die)
    os.waitpid(pid, 0)
    (run / ".mine.part").write_text("no draft")
    (left,) = [name for name in os.listdir(run) if name != ".mine.part"]
    assert left.startswith(".weights.safetensors.")
    remove_drafts(run)
    assert os.listdir(run) == [".mine.part"]


def test_drafts_of_the_living_are_left_alone(run):
    def write(file):
        file.write(b"half")
        file.flush()
        remove_drafts(run)
        file.write(b" and half")

    write_file(run / "export.npz", write)
    assert (run / "export.npz").read_bytes() == b"half and half"


def test_content_of_each_kind_and_modes(run):
    mask = os.umask(0o027)
    try:
        for name, content in {"s": "ä\udc80\n", "b": b"\0\1", "v": memoryview(b"abc"), "f": lambda file: None}.items():
            write_file(run / name, content)
        lock_file(run / ".lock").close()
        write_file(run / "secret", b"", mode=0o600)
    finally:
        os.umask(mask)
    assert [(run / name).read_bytes() for name in "sbvf"] == ["ä\\udc80\n".encode(), b"\0\1", b"abc", b""]
    modes = {name: oct((run / name).stat().st_mode & 0o777) for name in ("s", ".lock", "secret")}
    assert modes == {"s": "0o640", ".lock": "0o600", "secret": "0o600"}


@pytest.mark.parametrize("name", ["a" * 255, "ä" * 127, "字" * 85, os.fsdecode(b"\xff" * 255)])
def test_the_longest_names_have_drafts(name, run):
    write_file(run / name, "1")
    assert os.listdir(run) == [name]


def test_a_lock_that_others_could_read_becomes_private(run):
    (run / ".lock").write_text("")
    (run / ".lock").chmod(0o644)
    lock_file(run / ".lock").close()
    assert (run / ".lock").stat().st_mode & 0o777 == 0o600


def test_reading_goes_by_the_descriptor_of_a_folder(run, outside):
    (run / "a").write_text("1")
    folder = os.open(run, os.O_RDONLY)
    try:
        with open_file("a", folder=folder, follow_links=False) as file:
            assert file.read() == b"1"
    finally:
        os.close(folder)


@pytest.mark.parametrize(
    ("kind", "wanted", "told"),
    [
        ("link", "", "is a link"),
        ("dangling link", "folder", "is a link"),
        ("pipe", "", "is not a regular file"),
        ("socket", "file", "is not a regular file"),
        ("directory", "file", "is a directory"),
        ("directory", "", ""),
        ("directory", "folder", ""),
        ("nothing", "file", ""),
    ],
)
def test_an_entry_is_what_it_is_to_be(kind, wanted, told, run, outside):
    put(kind, run / "entry", outside)
    if not told:
        check_entry(run / "entry", wanted)
        return
    with pytest.raises(OSError, match=told) as found:
        check_entry(run / "entry", wanted)
    assert found.value.errno in WRONG_KINDS
    assert found.value.filename == str(run / "entry")


def test_an_entry_may_have_a_second_name(run, outside):
    os.link(outside, run / "events.jsonl")
    check_entry(run / "events.jsonl", "file")
    with pytest.raises(OSError, match="is not a directory"):
        check_entry(run / "events.jsonl", "folder")


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_a_file_is_moved_over_a_file_only(kind, run, outside):
    (run / "part").write_text("new")
    put(kind, run / "whole", outside)
    with pytest.raises(OSError, match=r"link|regular|directory"):
        move_file(run / "part", run / "whole")
    (run / "old").write_text("old")
    move_file(run / "part", run / "old")
    assert (run / "old").read_text() == "new"
    assert outside.read_bytes() == SECRET


def test_a_file_that_takes_a_part_at_a_time_gets_all(run, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:3]))
    with append_file(run / "a") as file:
        write_all(file, b"0123456789\n")
        write_all(file, b"")
    assert (run / "a").read_bytes() == b"0123456789\n"
