import fcntl
import io
import os
import socket
import threading
from dataclasses import replace
from email.message import Message
from pathlib import Path

import pytest

from unisono.data import fetch as module
from unisono.data.fetch import Download, fetch
from unisono.errors import UserError

BODY = bytes(range(256)) * 1000


def fine(path):
    return "" if path.read_bytes() == BODY else f"{path.stat().st_size} bytes of something else"


@pytest.fixture
def job(server, tmp_path):
    server.files = {"file.gz": BODY}
    return Download(f"{server.url}/file.gz", tmp_path / "deep" / "file.gz", most_bytes=len(BODY))


def left(job):
    return sorted(path.name for path in job.path.parent.iterdir() if path.name != ".lock")


def locked(job):
    """The descriptor of a lock that another download would hold."""
    job.path.parent.mkdir()
    lock = os.open(job.path.parent / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def test_a_file_is_fetched_once_with_progress(job, server):
    told = []
    fetch(replace(job, progress=lambda *what: told.append(what)), fine)
    assert job.path.read_bytes() == BODY
    assert left(job) == ["file.gz"]
    assert told[-1] == ("file.gz", len(BODY), len(BODY))
    assert [done for _, done, _ in told] == sorted({done for _, done, _ in told})
    fetch(job, fine)
    assert server.asked == [("file.gz", "")]


@pytest.mark.parametrize(
    ("changed", "asked"),
    [
        ({"cuts": [1000, 5000]}, ["", "bytes=1000-", "bytes=6000-"]),
        ({"cuts": [1000], "ranges": False}, ["", "bytes=1000-"]),  # which starts over
        ({"cuts": [1000], "lie": 1}, ["", "bytes=1000-", ""]),  # which sends another range
    ],
)
def test_a_broken_connection_goes_on_where_it_ended_if_the_server_can(job, server, changed, asked):
    vars(server).update(changed)
    fetch(job, fine)
    assert job.path.read_bytes() == BODY
    assert [wanted for _, wanted in server.asked] == asked


def test_after_three_attempts_the_part_is_kept_for_the_next_time(job, server):
    server.cuts = [1000, 1000, 1000]
    with pytest.raises(UserError, match=r"ended after 3000 of 256000 bytes \(attempt 3\); 3000 bytes are kept"):
        fetch(job, fine)
    assert left(job) == ["file.gz.part"]
    fetch(job, fine)
    assert server.asked[-1] == ("file.gz", "bytes=3000-")
    assert left(job) == ["file.gz"]


def test_a_server_that_does_not_say_the_length(job, server):
    server.chunked = True
    told = []
    fetch(replace(job, progress=lambda *what: told.append(what)), fine)
    assert told[-1] == ("file.gz", len(BODY), 0)


@pytest.mark.parametrize("part", [b"x" * 1000, b"x" * len(BODY), BODY + b"x"])
def test_a_part_of_another_file_is_thrown_away(job, part):
    job.path.parent.mkdir()
    job.path.with_name("file.gz.part").write_bytes(part)
    fetch(job, fine)
    assert job.path.read_bytes() == BODY


def test_a_part_that_was_complete_is_not_fetched_again(job, server):
    job.path.parent.mkdir()
    job.path.with_name("file.gz.part").write_bytes(BODY)
    fetch(job, fine)
    assert [wanted for _, wanted in server.asked] == [f"bytes={len(BODY)}-"]
    assert left(job) == ["file.gz"]


def test_a_wrong_file_is_refused_and_not_kept(job, server):
    server.files["file.gz"] = b"<html>"
    with pytest.raises(UserError, match=r"file\.gz: not the file that was expected: 6 bytes of something else\nHINT"):
        fetch(job, fine)
    assert left(job) == []


@pytest.mark.parametrize(
    ("chunked", "said"), [(False, "768,000 bytes are to come"), (True, "more than 256000 bytes came")]
)
def test_a_file_that_is_too_long_is_not_written_to_the_end(job, server, chunked, said):
    server.files["file.gz"], server.chunked = BODY * 3, chunked
    with pytest.raises(UserError, match=f"{said}; the file that is expected has at most 256,000"):
        fetch(job, fine)
    assert chunked or job.path.with_name("file.gz.part").stat().st_size == 0


@pytest.mark.parametrize(
    ("status", "said", "asked"),
    [(200, r"404 Not Found\nHINT: try another address", 1), (503, r"503 Service Unavailable \(attempt 3\)", 3)],
)
def test_a_server_that_has_no_such_file_or_is_in_trouble(job, server, status, said, asked):
    server.status = status
    with pytest.raises(UserError, match=rf"other\.gz: the server answers {said}"):
        fetch(replace(job, url=f"{server.url}/other.gz"), fine)
    assert len(server.asked) == asked


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"limit_s": 0.0}, "not complete after 0 s"),
        ({"url": "file:///etc/passwd"}, "file:///etc/passwd: cannot fetch from there"),
        ({"path": Path("/proc/nothing/file.gz")}, r"cannot write /proc/nothing: .*\nHINT: give a directory"),
    ],
)
def test_what_cannot_be_fetched_is_said(job, changed, said):
    with pytest.raises(UserError, match=said):
        fetch(replace(job, **changed), fine)


def test_a_silent_server_is_given_up(job):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/file.gz"
        with pytest.raises(UserError, match=r"was silent for 0.5 s \(attempt 3\)"):
            fetch(replace(job, url=url, timeout_s=0.5), fine)


def test_no_server_at_all(job):
    with socket.socket() as deaf:  # has a port, and listens to nobody
        deaf.bind(("127.0.0.1", 0))
        with pytest.raises(UserError, match="no connection"):
            fetch(replace(job, url=f"http://127.0.0.1:{deaf.getsockname()[1]}/file.gz"), fine)


def test_a_full_disk_is_said(job, monkeypatch):
    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(UserError, match=r"cannot write .*file\.gz\.part: No space left"):
        fetch(job, fine)


def test_who_waits_for_another_process_finds_the_file(job, server):
    lock = locked(job)
    failures = []

    def wait():
        try:
            fetch(job, fine)
        except BaseException as error:
            failures.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    job.path.write_bytes(BODY)  # the other process is done
    os.close(lock)
    waiter.join()
    assert failures == []
    assert server.asked == []


def test_a_lock_that_is_never_free_is_given_up(job):
    lock = locked(job)
    try:
        with pytest.raises(UserError, match="another process has been fetching"):
            fetch(replace(job, limit_s=0.0), fine)
    finally:
        os.close(lock)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", [".lock", "file.gz.part"])
@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe"])
def test_nothing_is_written_but_into_a_file_of_its_own(job, tmp_path, name, kind):
    path, outside = job.path.with_name(name), tmp_path / "outside"
    path.parent.mkdir()
    outside.write_text("not yours")
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(outside if kind == "link" else tmp_path / "new")
    with pytest.raises(UserError, match=rf"cannot write .*{name}: (is|has) .*\nHINT"):
        fetch(job, fine)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["deep", "outside"]
    assert outside.read_text() == "not yours"


def test_who_is_waited_for_is_said(job, capsys, monkeypatch):
    monkeypatch.setattr(module, "TOLD_S", -1.0)
    lock = locked(job)
    monkeypatch.setattr(module.time, "sleep", lambda _: os.close(lock))
    fetch(job, fine)
    told = capsys.readouterr().err
    assert told.startswith(f"unisono: waiting for another download: process {os.getpid()} ")
    assert told.endswith(f" holds {job.path.parent / '.lock'}\n")


def test_a_redirect_to_the_same_scheme_is_followed(job, server):
    server.files["led"], server.leads_to = BODY, f"{server.url}/led"
    fetch(job, fine)
    assert job.path.read_bytes() == BODY


@pytest.mark.parametrize("where", ["ftp://127.0.0.1/file", "FILE:///etc/passwd", "data:,x"])
def test_a_redirect_to_another_scheme_is_refused(job, server, where):
    server.leads_to = where
    with pytest.raises(UserError, match=r"the server leads to '.*', from http to something else|answers 302"):
        fetch(job, fine)
    assert len(server.asked) == 1


@pytest.mark.parametrize(("where", "followed"), [("http://example.org/x", False), ("https://example.org/x", True)])
def test_https_is_never_left(where, followed):
    asked = module.Request("https://example.org/file.gz")
    arguments = asked, io.BytesIO(), 302, "Found", Message(), where
    if followed:
        assert module._Redirects().redirect_request(*arguments).full_url == where
    else:
        with pytest.raises(UserError, match="from https to something else"):
            module._Redirects().redirect_request(*arguments)
