"""The run directory: its contract, and whose it is."""

import csv
import errno
import fcntl
import io
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path

import pytest

from support.training.snapshot_cases import is_locked
from unisono.errors import UserError
from unisono.files import remove_drafts
from unisono.locks import FileLock
from unisono.messages.rank_reports import EpochRecord
from unisono.recipe import Recipe
from unisono.storage import rundir as module
from unisono.storage.retrying_writer import RetryingWriter
from unisono.storage.run_files import LIVE_PAGE
from unisono.storage.rundir import LOCK, RunDirectory, token_in
from unisono.supervise.children import defer_signals, fork_child, reap

RECIPE = Recipe.from_options(epochs=3)
FILES = ["contributions.csv", "metrics.jsonl", "ranks.csv", "recipe.toml", "summary.json", "sync_time.csv"]


def record(epoch: int, **metrics) -> EpochRecord:
    times = {"data_s": 1.0, "compute_s": 2.0, "wait_s": 0.25, "update_s": 0.5}
    ranks = [times | {"host": host, "samples": 50 + r, "last_steps": r} for r, host in enumerate(["a", "b,c"])]
    shares = [[[0.25, 0.5, -1.0]], [[0.75, 0.9, 2.0]]]
    return EpochRecord({"epoch": epoch, "total_s": 1.5} | metrics, 4, ranks, shares, meetings=4)


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir() if entry.name != LOCK)


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir() if file.name != LOCK}


def epochs_of(path: Path) -> list[int]:
    return [json.loads(line)["epoch"] for line in (path / "metrics.jsonl").read_text().splitlines()]


Make = Callable[..., RunDirectory]


@pytest.fixture
def make() -> Iterator[Make]:
    """Directories that are released when the test ends."""
    with ExitStack() as kept:
        yield lambda path, recipe=RECIPE: kept.enter_context(RunDirectory.make(str(path), recipe))


@pytest.fixture
def run(tmp_path) -> Path:
    """A finished run of three epochs."""
    with RunDirectory.make(str(tmp_path / "run"), RECIPE) as directory:
        for epoch in (1, 2, 3):
            directory.add(record(epoch), ["W"])
        directory.finish({"status": "finished"})
    return directory.path


def test_the_contract(tmp_path, make):
    directory = make(tmp_path / "run")
    for epoch in (1, 2):
        directory.add(record(epoch), ["W"])
    directory.finish({"status": "finished"})
    run = tmp_path / "run"
    assert names(run) == FILES
    assert epochs_of(run) == [1, 2]
    with open(run / "ranks.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert list(table[0]) == [
        "epoch", "rank", "host", "samples", "compute_s", "sync_s", "wait_s", "data_s", "update_s", "last_steps",
        "contribution:W", "norm_share:W", "gradient_mean:W",
    ]  # fmt: skip
    assert ";".join(table[3].values()) == "2;1;b,c;51;2.0;0.75;0.25;1.0;0.5;1;0.75;0.9;2.0"
    assert (run / "sync_time.csv").read_text() == "Epoch, Sync Time (s)\n1, 0.750000\n2, 0.750000\n"
    told = (run / "contributions.csv").read_text().splitlines()
    assert told[1] == "Epoch 1, Process 1, W Contribution = 75.00%"
    assert len(told) == 4
    assert json.loads((run / "summary.json").read_text()) == {"status": "finished"}
    assert (directory.writer.trouble, directory.writer.missing) == ("", [])


def test_what_json_cannot_hold_is_null(tmp_path, make):
    directory = make(tmp_path / "run")
    directory.add(record(1, test_loss=float("inf")), ["W"])
    directory.finish({"test_loss": float("nan")})
    for name in ("metrics.jsonl", "summary.json"):
        assert json.loads((directory.path / name).read_text())["test_loss"] is None


def test_a_directory_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "precious").write_text("x")
    with pytest.raises(UserError, match="exists and is not empty"):
        RunDirectory.make(str(tmp_path), RECIPE)
    for path in ("precious", "precious/run"):
        with pytest.raises(UserError, match=f"--out .*{path}: Not a directory\nHINT"):
            RunDirectory.make(str(tmp_path / path), RECIPE)
    assert names(tmp_path) == ["precious"]


def test_runs_of_one_second_get_directories_of_their_own(tmp_path, monkeypatch, make):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module.time, "strftime", lambda form: "now")
    recipe = Recipe.from_options(model="here/net.py:make", data="there/rows.npz")
    made = [str(make("", recipe).path) for _ in range(3)]
    assert made == ["runs/now-net-rows", "runs/now-net-rows-2", "runs/now-net-rows-3"]


def test_nothing_is_left_of_a_directory_that_could_not_be_made(tmp_path, monkeypatch):
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(UserError, match=r"deep/run: No space left on device\nHINT: make room"):
        RunDirectory.make(str(tmp_path / "deep" / "run"), RECIPE)
    assert names(tmp_path) == []
    (tmp_path / "mine").mkdir()
    with pytest.raises(UserError):
        RunDirectory.make(str(tmp_path / "mine"), RECIPE)
    assert names(tmp_path) == ["mine"]  # it was the user's


@pytest.mark.parametrize(("name", "left"), [(LIVE_PAGE, []), ("note", ["note"])])
def test_discarding_takes_the_address_of_a_live_page_along_and_leaves_what_others_put_there(tmp_path, make, name, left):
    directory = make(tmp_path / "deep" / "run")
    (tmp_path / "deep" / "run" / name).write_text("http://127.0.0.1:13/token/")
    with open(tmp_path / "deep" / "run" / LOCK) as file:
        directory.discard()
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it is released
    assert [path.name for path in tmp_path.rglob("*") if path.is_file() and path.name != LOCK] == left
    assert (tmp_path / "deep").exists() == bool(left)


def test_a_lock_of_ranks_that_are_dying_is_waited_for(tmp_path, monkeypatch):
    """They hold their parent's, which may have been killed with them and be gone before them."""
    directory = RunDirectory.make(str(tmp_path / "run"), RECIPE)
    with defer_signals():
        child = fork_child(lambda: signal.pause() or 0)
    directory.release()
    attempt = FileLock.acquire

    def attempt_and_kill(lock: FileLock) -> bool:
        if found := attempt(lock):
            return found
        os.kill(child, signal.SIGKILL)
        return False

    monkeypatch.setattr(FileLock, "acquire", attempt_and_kill)
    monkeypatch.setattr(module, "DYING_S", 60.0)
    assert is_locked(tmp_path / "run" / LOCK)
    try:
        with RunDirectory.reopen(directory.path, 0, RECIPE):
            assert is_locked(tmp_path / "run" / LOCK)
    finally:
        os.kill(child, signal.SIGKILL)
        reap(child)


def test_one_run_at_a_time_writes_into_a_directory(tmp_path, make, monkeypatch):
    monkeypatch.setattr(module, "DYING_S", 0.0)
    run = tmp_path / "run"
    directory = make(run)
    directory.add(record(1), ["W"])
    before, token = (run / "metrics.jsonl").read_bytes(), token_in(run)
    with pytest.raises(UserError, match=rf"unisono train: process {os.getpid()} .*/run/.lock\nHINT: wait for"):
        RunDirectory.reopen(run, 0, RECIPE)
    with pytest.raises(UserError, match=r"is in use by another unisono train: process \d+"):
        RunDirectory.check_unused(run)
    assert ((run / "metrics.jsonl").read_bytes(), token_in(run)) == (before, directory.token) == (before, token)
    directory.release()
    RunDirectory.check_unused(run)
    assert token_in(run) == token
    with RunDirectory.reopen(run, 0, RECIPE):
        assert is_locked(run / LOCK)
    assert (run / "metrics.jsonl").read_bytes() == b""
    RunDirectory.check_unused(tmp_path / "no such run")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_a_directory_is_released_whatever_ends_the_run(tmp_path):
    with suppress(KeyboardInterrupt), RunDirectory.make(str(tmp_path / "run"), RECIPE):
        assert is_locked(tmp_path / "run" / LOCK)
        raise KeyboardInterrupt
    assert not is_locked(tmp_path / "run" / LOCK)


def test_a_directory_that_cannot_be_gone_on_with_is_released(run, monkeypatch):
    def fail(fd: int) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    before = contents(run)
    monkeypatch.setattr(module.os, "fsync", fail)
    with pytest.raises(UserError, match="Read-only file system\nHINT: the disk became read-only"):
        RunDirectory.reopen(run, 0, RECIPE.with_options(epochs=7))
    assert not is_locked(run / LOCK)
    assert contents(run) == before  # whole, whenever the disk or the process failed


def test_the_lock_is_one_that_network_file_systems_give(tmp_path, monkeypatch):
    def flock(file: io.FileIO | int, operation: int) -> None:
        number = file if isinstance(file, int) else file.fileno()
        mode = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE
        if operation & fcntl.LOCK_EX and mode == os.O_RDONLY:  # as NFS does
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        asked[Path(os.readlink(f"/proc/self/fd/{number}")).suffix] = operation

    asked: dict[str, int] = {}
    monkeypatch.setattr(fcntl, "flock", flock)
    with RunDirectory.make(str(tmp_path / "run"), RECIPE):
        assert asked == dict.fromkeys(("", ".part"), fcntl.LOCK_EX | fcntl.LOCK_NB)  # of .lock, and of a draft
        (tmp_path / "run" / ".a.0123456789abcdef.part").touch()
        remove_drafts(tmp_path / "run")
        assert names(tmp_path / "run") == ["recipe.toml"]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EIO])
def test_only_a_file_system_without_locks_is_done_without(tmp_path, monkeypatch, number):
    def flock(file: io.FileIO, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    refused = pytest.raises(UserError, match="Input/output error") if number == errno.EIO else nullcontext()
    with refused, RunDirectory.make(str(tmp_path / "run"), RECIPE):
        assert names(tmp_path / "run") == ["recipe.toml"]


def test_a_run_that_could_not_be_gone_on_with_is_as_it_was(run):
    (run / "ranks.csv").write_bytes((run / "ranks.csv").read_bytes() + b"\xff")
    before = contents(run)
    with RunDirectory.reopen(run, 1, RECIPE.with_options(epochs=9, shards=4)) as again:
        assert not (run / "summary.json").exists()
        assert epochs_of(run) == [1]
        again.discard()
    assert contents(run) == before


def test_what_a_run_that_went_on_has_added_is_not_taken_back(run):
    with RunDirectory.reopen(run, 1, RECIPE) as again:
        again.add(record(2), ["W"])
        again.discard()
    assert epochs_of(run) == [1, 2]


def test_a_disk_that_fails_while_a_run_is_reopened_leaves_it_as_it_was(run, monkeypatch):
    before, cut = contents(run), RetryingWriter.cut

    def fail(writer: RetryingWriter, name: str, kept: Callable[[int, str], bool]) -> None:
        if name == "sync_time.csv":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        cut(writer, name, kept)

    monkeypatch.setattr(RetryingWriter, "cut", fail)
    with pytest.raises(UserError, match="No space left on device"):
        RunDirectory.reopen(run, 1, RECIPE.with_options(epochs=9))
    assert contents(run) == before
    assert not is_locked(run / LOCK)


@pytest.mark.parametrize("kind", ["a link", "a pipe"])
def test_a_lock_that_leads_elsewhere_is_refused_and_what_is_there_stays(run, tmp_path, kind):
    lock, precious = run / LOCK, tmp_path / "precious"
    precious.write_text("mine")
    lock.unlink()
    lock.symlink_to(precious) if kind == "a link" else os.mkfifo(lock)
    with pytest.raises(UserError, match=".lock is a link" if kind == "a link" else ".lock is not a regular file"):
        RunDirectory.reopen(run, 1, RECIPE)
    assert precious.read_text() == "mine"


def test_a_run_that_is_not_gone_on_with_keeps_its_token(run):
    """By it other machines know the run."""

    def refuse() -> None:
        raise UserError("not this one")

    token = token_in(run)
    with pytest.raises(UserError, match="not this one"):
        RunDirectory.reopen(run, 0, RECIPE, refuse)
    assert token_in(run) == token
    with RunDirectory.reopen(run, 0, RECIPE) as again:
        assert token_in(run) == again.token != token
        again.discard()
    assert token_in(run) == token


def test_lines_that_are_damaged_do_not_keep_a_run_from_going_on(run):
    metrics, ranks = run / "metrics.jsonl", run / "ranks.csv"
    whole = metrics.read_text(), ranks.read_text()
    metrics.write_bytes(b"\0\0\n" + metrics.read_bytes() + b"\xff\xfe\n\0\0\0\n")
    ranks.write_bytes(ranks.read_bytes() + b"\xff,\0\n")
    RunDirectory.reopen(run, 3, RECIPE).release()
    assert (metrics.read_text(), ranks.read_text()) == whole


def test_a_disk_that_is_really_full(small_disk):
    disk = small_disk(64)
    run = disk / "run"
    with RunDirectory.make(str(run), RECIPE) as directory:
        directory.add(record(1), ["W"])
        with pytest.raises(OSError, match="No space left"):
            (disk / "ballast").write_bytes(bytes(1 << 20))
        for epoch in range(2, 200):
            directory.add(record(epoch), ["W"])
        assert "No space left on device" in directory.writer.trouble
        for name in ("metrics.jsonl", "ranks.csv", "sync_time.csv", "contributions.csv"):
            assert (run / name).read_bytes().endswith(b"\n")
        directory.finish({"status": "finished", "machine": "x" * 8192})
        assert "summary.json" in directory.writer.missing
        assert not (run / "summary.json.part").exists()
        (disk / "ballast").unlink()
        directory.add(record(200), ["W"])
    assert epochs_of(run) == list(range(1, 201))
    assert len((run / "ranks.csv").read_text().splitlines()) == 401


def test_a_disk_that_became_read_only(small_disk):
    disk = small_disk(64)
    with RunDirectory.make(str(disk / "run"), RECIPE) as directory:
        directory.release()  # with a file open for writing only a disk that fails becomes read-only
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        directory.add(record(1), ["W"])
        assert "the disk became read-only" in directory.writer.trouble
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        directory.add(record(2), ["W"])
    assert epochs_of(disk / "run") == [1, 2]
