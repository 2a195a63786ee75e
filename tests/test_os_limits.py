"""Too little of something: said with what to do, before anything is made."""

import errno
import os
import resource
import tempfile
from collections.abc import Callable

import pytest

import unisono
from support.cli.forked_command import forked
from unisono import os_limits as limits
from unisono.cli import compare, profile, train, tune  # noqa: F401 - once, not in every forked command
from unisono.cli.main import app
from unisono.errors import UserError
from unisono.os_limits import check_limits, crowd_note, naming_shortage, task_room
from unisono.recipe import Recipe
from unisono.supervise import children
from unisono.training.checks import check_machine

DATA = "synthetic:classes=5,rows=101,features=13,test_rows=29"
TRAIN = ["train", "--data", DATA, "--batch-size", "24", "--epochs", "1", "--model", "mlp:7", "--out", "run"]


@pytest.fixture
def in_child() -> Callable[[Callable[[], None]], int]:
    """Runs a function in a forked process, whose limits are its own; the exit code."""

    def run(body: Callable[[], None]) -> int:
        with children.defer_signals():
            pid = children.fork_child(lambda: body() or 0)
        return os.waitstatus_to_exitcode(children.reap(pid))

    return run


def test_a_soft_limit_is_raised_as_far_as_is_needed(in_child):
    def body() -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
        check_limits(5)
        now, same = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert 64 < now <= 64 + 5 * limits.RANK_FILES + limits.SPARE_FILES
        assert same == hard

    assert in_child(body) == 0


def test_a_run_with_a_low_soft_limit_just_runs(in_child):
    def body() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        assert unisono.run(lambda world: world.rank, 3) == [0, 1, 2]

    assert in_child(body) == 0


def test_too_few_files_are_said_before_anything_is_made(in_child, tmp_path):
    def body() -> None:
        os.chdir(tmp_path)
        resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
        told = (
            r"--ranks 7 needs about \d+ open files, and this process may have 60 \(ulimit -Hn\)\nHINT: use fewer ranks"
        )
        with pytest.raises(UserError, match=told):
            app([*TRAIN, "--ranks", "7"], exit_on_error=False)

    assert in_child(body) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        [*TRAIN, "--ranks", "7"],
        ["compare", *TRAIN[1:], "--over", "ranks=1,7"],
        ["tune", *TRAIN[1:], "--ranks", "7", "--threads", "1"],
        ["profile", *TRAIN[1:-2], "--ranks", "7"],
        ["bench", "--ranks", "2,7", "--sizes", "1KiB", "--out", "run", "--transports", "shm"],
    ],
    ids=lambda command: command[0],
)
def test_every_command_says_what_is_short_before_anything_is_made(command, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "group_task_room", lambda: 9)
    ended = forked(*command, cwd=tmp_path)
    assert (ended.returncode, list(tmp_path.iterdir())) == (2, []), ended.stderr
    told = (
        "7 needs about 15 processes and threads, 9 more may be started (pids.max of the container or job)\nHINT: use "
    )
    assert told in ended.stderr


def test_too_little_memory_for_the_processes_alone(monkeypatch):
    monkeypatch.setattr(limits, "available_bytes", lambda: 13 * 2**20)
    check_limits(6)
    with pytest.raises(UserError, match="--ranks 7: the processes alone need about 14 MiB of memory, 13 MiB are"):
        check_limits(7)


@pytest.mark.parametrize("ranks", [3001, 10**12])
def test_absurd_numbers_of_ranks_are_refused_at_once(ranks, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "usable_cores", lambda: 2)
    ended = forked(*TRAIN, "--ranks", str(ranks), cwd=tmp_path)
    assert (ended.returncode, list(tmp_path.iterdir())) == (2, [])
    assert f"--ranks {ranks} for 2 cores: more than 512\nHINT: give fewer: 2, one for each core" in ended.stderr
    with pytest.raises(UserError, match=f"ranks {ranks} for 2 cores"):
        unisono.run(print, ranks)


@pytest.mark.parametrize(("cores", "most"), [(1, 512), (2, 512), (3, 768), (17, 4096), (5001, 5001)])
def test_many_ranks_may_be_tried_if_files_tasks_and_memory_last(cores, most, monkeypatch):
    """As after `taskset -c 0`."""
    monkeypatch.setattr(limits, "usable_cores", lambda: cores)
    monkeypatch.setattr(limits, "available_bytes", lambda: 2**40)
    monkeypatch.setattr(limits, "task_room", lambda needed: (needed, ""))
    monkeypatch.setattr(limits, "_raise_soft_limit", lambda kind, needed: needed)
    check_limits(most)
    with pytest.raises(UserError, match=f"--ranks {most + 1} for {cores} cores?: more than {most:,}\nHINT: give fewer"):
        check_limits(most + 1)


def test_absurd_shards_and_nodes_are_refused(tmp_path):
    ended = forked(*TRAIN, "--ranks", "2", "--shards", str(10**11), cwd=tmp_path)
    assert (ended.returncode, list(tmp_path.iterdir())) == (2, [])
    assert "of shared memory are needed" in ended.stderr
    assert "HINT: use fewer ranks or shards" in ended.stderr
    several = ["--num-nodes", str(10**9), "--node-id", "0", "--main-address", "127.0.0.1"]
    ended = forked(*TRAIN, *several, cwd=tmp_path)
    assert (ended.returncode, list(tmp_path.iterdir())) == (2, [])
    assert "--num-nodes is 1000000000\nHINT: give 10,000 or fewer" in ended.stderr


def test_many_ranks_for_each_core_are_said(monkeypatch):
    monkeypatch.setattr(limits, "usable_cores", lambda: 2)
    assert crowd_note(32) == crowd_note(16, threads=2) == ""
    assert crowd_note(33).startswith("Note: 33 ranks x 1 thread share 2 cores")


def test_the_limit_of_a_user_is_counted_with_its_processes(monkeypatch, tmp_path):
    """As it would be for anybody but root, who has none."""
    monkeypatch.setattr(limits.os, "geteuid", lambda: 4711)
    monkeypatch.setattr(limits, "group_task_room", lambda: None)
    monkeypatch.setattr(limits, "_all_tasks", lambda: 1000)
    monkeypatch.setattr(limits, "_count_tasks", lambda user=None: 30)
    monkeypatch.setattr(limits.resource, "getrlimit", lambda kind: (50, 50))
    assert task_room(25) == (20, "ulimit -u")
    monkeypatch.setattr(limits.resource, "getrlimit", lambda kind: (-1, -1))
    assert task_room(25)[0] >= 25


@pytest.mark.parametrize(("pid_max", "room"), [("32768", 31768), ("997", 994), ("1013", 1010), ("no number", 99000)])
def test_a_container_has_numbers_of_processes_of_its_own(pid_max, room, monkeypatch, tmp_path):
    """The machine has 1000 tasks, of which a container with a limit of its own sees three."""
    for name, text in {"threads-max": "100000", "pid_max": pid_max}.items():
        (tmp_path / "sys/kernel").mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys/kernel" / name).write_text(f"{text}\n")
    for task in ("1/task/1", "7/task/7", "7/task/8", "self/task/7"):
        (tmp_path / task).mkdir(parents=True)
    (tmp_path / "loadavg").write_text("0.1 0.2 0.3 1/1000 8\n")
    monkeypatch.setattr(limits, "_PROC", tmp_path)
    monkeypatch.setattr(limits, "group_task_room", lambda: None)
    monkeypatch.setattr(limits.os, "geteuid", lambda: 0)
    assert task_room(25)[0] == room


def test_tasks_are_counted():
    assert limits._count_tasks() >= 1
    assert limits._count_tasks(os.getuid()) >= 1
    assert limits._all_tasks() >= 1
    assert limits._open_files() >= 3


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE])
def test_a_fork_that_fails_is_said_and_everything_is_cleaned_up(number, monkeypatch, tmp_path):
    """The third process cannot be started: the first two are ended. (With torch in this process, one is no rank.)"""
    fork, forks = children.fork_child, []

    def third_fails(body):
        if len(forks) == 2:
            raise OSError(number, os.strerror(number))
        forks.append(fork(body))
        return forks[-1]

    monkeypatch.setattr(children, "fork_child", third_fails)
    with pytest.raises(UserError, match=f"rank [12] of 3 could not be started: {os.strerror(number)}\nHINT: "):
        unisono.run(lambda world: world.comm.barrier(), 3)
    assert len(forks) == 2
    for pid in forks:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_supervisor_whose_fork_fails_says_so(monkeypatch, tmp_path):
    def fails(*_):
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr("unisono.supervise.processes.ProcessGroup.start", fails)
    ended = forked(*TRAIN, "--ranks", "2", cwd=tmp_path)
    assert ended.returncode == 2
    assert "rank 0 could not be started: Resource temporarily unavailable\nHINT: no more processes" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        ("OSError(24, 'Too many open files')", "a rank could not go on: Too many open files\nHINT: this process may"),
        ("MemoryError()", "there is not enough memory for a rank\nHINT: there is not enough memory: use fewer ranks"),
        ('RuntimeError("can\'t start new thread")', "a rank could not start a thread\nHINT: no more processes"),
    ],
)
def test_a_rank_that_lacks_something_says_what(raised, told, monkeypatch, tmp_path):
    """Where it is in unisono's own code. The code of the user's has its traceback."""
    for file, ours in ((unisono.__file__, True), (str(tmp_path / "mine.py"), False)):
        made: dict[str, Callable[..., None]] = {}
        exec(compile(f"def groups(*_): raise {raised}", file, "exec"), made)
        monkeypatch.setattr("unisono.data.loader.Loader.groups", made["groups"])
        ended = forked(*TRAIN[:-1], str(tmp_path / f"run-{ours}"), "--ranks", "3")
        assert (ended.returncode, "Traceback" in ended.stderr) == ((2, False) if ours else (1, True)), ended.stderr
        assert (told in ended.stderr) == ours


def test_what_is_no_shortage_stays_what_it_is():
    with pytest.raises(FileNotFoundError), naming_shortage("x"):
        raise FileNotFoundError(errno.ENOENT, "gone")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "HINT: this process may not open more files"),
        (MemoryError(), "there is not enough memory\nHINT: "),
        (RuntimeError("Could not determine home directory."), "HINT: there is no such home: set HOME"),
        (RuntimeError("can't start new thread"), "HINT: no more threads may be started"),
        (FileNotFoundError(2, "No usable temporary directory found in ['/tmp']"), "HINT: set TMPDIR to a directory"),
    ],
)
def test_what_python_says_of_a_poor_machine_gets_a_hint(error, told, monkeypatch, tmp_path):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr("unisono.runs.lifecycle.run_lifecycle", fails)
    ended = forked(*TRAIN, cwd=tmp_path)
    assert ended.returncode in (1, 2)
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["compare", *TRAIN[1:], "--over", "ranks=1,2"],
        ["tune", *TRAIN[1:], "--ranks", "1"],
        ["bench", "--ranks", "2", "--sizes", "1KiB", "--out", "run", "--transports", "shm"],
    ],
    ids=lambda command: command[0],
)
def test_no_temporary_directory_is_said_before_anything_is_made(command, tmp_path, monkeypatch):
    places = tempfile.gettempdir()

    def without() -> None:
        raise FileNotFoundError(errno.ENOENT, f"No usable temporary directory found in ['{places}']")

    monkeypatch.setattr(tempfile, "_get_default_tempdir", without)
    ended = forked(*command, cwd=tmp_path, before=lambda: setattr(tempfile, "tempdir", None))
    assert (ended.returncode, list(tmp_path.iterdir())) == (2, []), ended.stderr
    assert "No usable temporary directory found in " in ended.stderr
    assert "HINT: set TMPDIR to a directory that you may write to" in ended.stderr


def test_a_working_directory_that_is_no_more(tmp_path, in_child):
    (tmp_path / "gone").mkdir()

    def body() -> None:
        os.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        with pytest.raises(UserError, match="the working directory is no more\nHINT: "):
            check_machine(Recipe())

    assert in_child(body) == 0


def test_a_name_that_no_file_system_takes(tmp_path):
    ended = forked("data", "list", "--data-dir", "a" * 313, cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.startswith("unisono: File name too long: aaa")
    assert ended.stderr.endswith("...\nHINT: give a shorter name\n")
