"""Locks: whoever finds one taken is told which file it is and who holds it."""

import ctypes
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from unisono.locks import FileLock, token_in

NOBODY = 65534
PR_SET_DUMPABLE = 4
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@contextmanager
def child(body: Callable[[], None]) -> Iterator[int]:
    """A process that has done `body`, and goes when the block is left."""
    ready, tell = os.pipe()
    stay, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(go)
            body()
            os.write(tell, b"1")
            os.read(stay, 1)
        finally:
            os._exit(0)
    os.close(tell)
    try:
        assert os.read(ready, 1) == b"1"
        yield pid
    finally:
        os.close(go)
        os.waitpid(pid, 0)
        os.close(ready)
        os.close(stay)


@pytest.fixture
def lock(tmp_path) -> Iterator[FileLock]:
    with FileLock(tmp_path / ".lock") as made:
        yield made


def take(path: Path) -> None:
    fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX)


def test_a_lock_is_held_by_one_and_says_by_whom(lock):
    with child(lambda: take(lock.path)) as pid:
        assert not lock.acquire()
        assert lock.describe_holder().startswith(f"process {pid} (")
        assert lock.describe_holder().endswith(f") holds {lock.path}")
        assert lock.hint() == "wait for it to end, or end it first"
    assert lock.acquire()
    with FileLock(lock.path) as other:
        assert not other.acquire()
        lock.unlock()
        assert other.acquire()


def test_children_of_one_that_is_gone_are_told_of(lock):
    def fork() -> None:
        take(lock.path)
        if os.fork():
            os._exit(0)

    ready, tell = os.pipe()
    stay, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        fork()
        os.write(tell, b"1")
        os.read(stay, 1)
        os._exit(0)
    os.waitpid(pid, 0)
    os.read(ready, 1)
    told = lock.describe_holder()
    os.close(go)  # it ends
    for fd in (ready, tell, stay):
        os.close(fd)
    assert told == f"a child of process {pid}, which has ended, holds {lock.path}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"8f3a nodeb 4711\n", "process 4711 on nodeb"),
        (b"8f3a", "an unknown process"),
        (b"", "an unknown process"),
        (b"a \x1b[31mb 7\n", "an unknown process"),
        (b"\xff\xfe b c d\n", "an unknown process"),
    ],
)
def test_of_another_machine_the_file_tells(lock, text, told, monkeypatch):
    lock.path.write_bytes(text)
    monkeypatch.setattr(FileLock, "_holding_pid", lambda self: None)
    assert lock.describe_holder() == f"{told} holds {lock.path}"


def test_the_token_stays_until_another_is_written(lock):
    lock.path.write_text("ours")  # as earlier versions wrote it
    assert lock.acquire()
    assert token_in(lock.path) == "ours"
    lock.sign("a" * 100)
    lock.sign("b")
    assert token_in(lock.path) == "b"
    lock.sign()
    assert token_in(lock.path) == token_in(lock.path.with_name("none")) == ""


@as_root
def test_another_user_who_could_read_an_old_lock_is_named(tmp_path):
    path = tmp_path / ".lock"
    path.touch(0o644)

    def take_as_nobody() -> None:
        file = os.open(path, os.O_RDONLY)
        os.setuid(NOBODY)
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1)  # else its entries in /proc stay root's
        fcntl.flock(file, fcntl.LOCK_EX)

    with child(take_as_nobody) as pid, FileLock(path) as lock:
        assert not lock.acquire()
        assert lock.describe_holder().startswith(f"process {pid} (")
        assert " of user nobody holds " in lock.describe_holder()
        assert "another user's process" in lock.hint()
        assert "earlier versions" in lock.hint()
        assert path.stat().st_mode & 0o777 == 0o600


@as_root
def test_a_lock_of_somebody_else_says_whose_it_is(tmp_path, monkeypatch):
    FileLock(tmp_path / ".lock").close()
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    os.seteuid(NOBODY)
    try:
        with pytest.raises(PermissionError, match="belongs to user root, and only its owner may lock it"):
            FileLock(Path(".lock"))
        with pytest.raises(PermissionError, match="Permission denied"):
            FileLock(Path("new"))
    finally:
        os.seteuid(0)


def test_a_lock_with_a_second_name_is_replaced_by_a_copy_once_it_is_held(tmp_path):
    """As after `cp -al` of a run: the backup stays as it is, and at no time do two hold the lock."""
    path, backup = tmp_path / ".lock", tmp_path / "backup"
    path.write_text("a1b2 elsewhere 13\n")
    path.chmod(0o644)
    os.link(path, backup)
    with FileLock(path) as first, FileLock(path) as second, FileLock(path) as third:
        assert first.acquire()
        assert not second.acquire()
        first.sign("c3d4")
        assert backup.read_text() == "a1b2 elsewhere 13\n"
        assert token_in(path) == "c3d4"
        first.close()
        assert second.acquire()  # that of the copy, though the one that it had opened is free as well
        assert not third.acquire()
    assert token_in(path) == "c3d4"
    assert backup.read_text() == "a1b2 elsewhere 13\n"
    assert [file.stat().st_mode & 0o777 for file in (path, backup)] == [0o600, 0o644]


def test_a_run_that_goes_on_keeps_its_lock_when_it_gets_a_second_name(tmp_path):
    path = tmp_path / ".lock"
    with FileLock(path) as first:
        assert first.acquire()
        os.link(path, tmp_path / "backup")
        with FileLock(path) as second:
            assert not second.acquire()
