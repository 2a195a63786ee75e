"""Where the secret between machines comes from, and files that are refused as one."""

import os
import stat
import threading
from contextlib import closing

import pytest

import unisono
from unisono.environment.os_environ import child_environment, given_secret
from unisono.environment.process_rank import Placement
from unisono.errors import UserError
from unisono.launch import secret
from unisono.launch.connect import connect
from unisono.launch.secret import find_secret
from unisono.supervise.config import SupervisorConfig
from unisono.supervise.rank_processes import RankProcesses

WORDS = "known to all machines"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("UNISONO_SECRET", raising=False)


def test_one_is_made_for_this_user_alone_and_found_again(tmp_path):
    before = os.umask(0)
    try:
        made = find_secret()
    finally:
        os.umask(before)
    file = tmp_path / "config/unisono/secret"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert made.key == file.read_bytes().strip()
    assert len(made.key) == 64
    assert made.source == f"{file}, which was made just now"
    again = find_secret()
    assert (again.key, again.source) == (made.key, str(file))


def test_a_file_goes_before_the_variable_and_that_before_the_users_own(tmp_path, monkeypatch):
    own = find_secret()
    monkeypatch.setenv("UNISONO_SECRET", WORDS)
    assert (find_secret().key, find_secret().source) == (WORDS.encode(), "the variable UNISONO_SECRET")
    file = tmp_path / "mine"
    file.touch(0o400)
    file.chmod(0o600)
    file.write_text(f"{WORDS}, too\n")
    file.chmod(0o400)
    assert (find_secret(str(file)).key, find_secret(str(file)).source) == (f"{WORDS}, too".encode(), str(file))
    assert own.key not in (find_secret().key, find_secret(str(file)).key)


def test_a_variable_may_hold_any_bytes(monkeypatch):
    monkeypatch.setitem(os.environb, b"UNISONO_SECRET", bytes(range(128, 161)))
    assert find_secret().key == bytes(range(128, 161))


def test_what_another_process_is_writing_is_waited_for(tmp_path, monkeypatch):
    file = tmp_path / "config/unisono/secret"
    found = []

    def create(path, content, durable, mode):  # as if another process had been a moment quicker
        file.touch(0o600)
        thread = threading.Thread(target=lambda: file.write_text(WORDS))
        found.append(thread)
        thread.start()
        raise FileExistsError

    monkeypatch.setattr(secret, "create_file", create)
    assert find_secret().key == WORDS.encode()
    found[0].join()


def test_a_file_that_is_there_but_empty_yet_is_waited_for(tmp_path, monkeypatch):
    file = tmp_path / "config/unisono/secret"
    file.parent.mkdir(parents=True)
    file.touch(0o600)
    monkeypatch.setattr("unisono.launch.secret.time.sleep", lambda seconds: file.write_text(WORDS))
    assert find_secret().key == WORDS.encode()


@pytest.mark.parametrize(
    ("mode", "text", "reason"),
    [
        (
            0o640,
            WORDS,
            "may be used by others: its mode is 0640, 0040 too much(.|\n)*HINT: chmod 600(.|\n)*set UNISONO_SECRET",
        ),
        (0o602, WORDS, "may be used by others"),
        (0o600, "fifteen letters", "has 15 bytes(.|\n)*HINT: a secret has 16 to 4096, made at random"),
        (0o600, "\n\n", "has 0 bytes"),
        (0o600, "x" * 4097, "has more than 4096 bytes"),
    ],
)
def test_files_that_are_refused(tmp_path, mode, text, reason):
    file = tmp_path / "mine"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(UserError, match=f"--secret-file {file} {reason}"):
        find_secret(str(file))


def test_neither_a_missing_file_nor_a_pipe_nor_a_folder_is_one(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name, reason in (("none", "No such file"), ("pipe", "is not a regular file"), ("", "is a directory")):
        with pytest.raises(UserError, match=f"cannot be read: {reason}"):
            find_secret(str(tmp_path / name) if name else str(tmp_path))


def test_the_file_of_another_user_is_refused(tmp_path, monkeypatch):
    file = tmp_path / "mine"
    file.write_text(WORDS)
    file.chmod(0o600)
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    with pytest.raises(UserError, match=r"belongs to another user(.|\n)*set UNISONO_SECRET to what the file has"):
        find_secret(str(file))


def test_a_short_variable_is_refused_without_being_shown(monkeypatch):
    monkeypatch.setenv("UNISONO_SECRET", "sesame")
    with pytest.raises(UserError, match="the variable UNISONO_SECRET has 6 bytes") as caught:
        find_secret()
    assert "sesame" not in str(caught.value)


def test_neither_ranks_nor_other_programs_get_the_variable(monkeypatch):
    monkeypatch.setenv("UNISONO_SECRET", WORDS)
    found = []
    ranks = RankProcesses(1, lambda slot, after, report: given_secret(), SupervisorConfig(), print)
    with closing(ranks):
        ranks.start(0, after=0)
        while not found:
            found = ranks.poll(60.0)
    assert found[0].result == ""
    assert unisono.run(lambda world: given_secret(), 1, start="fork") == [""]
    assert "UNISONO_SECRET" not in child_environment(1)
    assert given_secret() == WORDS


def test_a_rank_that_connects_keeps_the_secret_out_of_its_environment(monkeypatch):
    monkeypatch.setattr(secret, "_kept", {})
    monkeypatch.setenv("UNISONO_SECRET", WORDS)
    for _ in range(2):  # it may connect again
        with pytest.raises(UserError, match="needs the address of rank 0"):
            connect(Placement(1, 4, 1, 4, 0, 1, None, "SLURM"), "gloo", 1.0)
        assert "UNISONO_SECRET" not in os.environ
        assert (find_secret().key, find_secret().source) == (WORDS.encode(), "the variable UNISONO_SECRET")


def test_no_file_is_made_in_the_home_of_another_user(tmp_path, monkeypatch):
    if os.geteuid() == 0:
        os.chown(tmp_path, 1013, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 0)  # a sudo that keeps HOME
    with pytest.raises(UserError, match=rf"but {tmp_path} belongs to another user \(uid \d+\)(.|\n)*as sudo -H does"):
        find_secret()
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "config").write_text("a file")
    with pytest.raises(UserError, match=r"cannot be made: Not a directory(.|\n)*set UNISONO_SECRET"):
        find_secret()


@pytest.mark.parametrize("runtime", [True, False])
def test_ranks_of_one_machine_need_no_home_that_can_be_written(tmp_path, monkeypatch, runtime):
    (tmp_path / "config").write_text("a file")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path) if runtime else str(tmp_path / "none"))
    found = [find_secret(one_machine=True) for _ in range(2)]
    folder = tmp_path / ("unisono" if runtime else f"unisono-{os.geteuid()}")
    assert found[1].source == str(folder / "secret")
    assert found[0].key == found[1].key == (folder / "secret").read_bytes().strip()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "secret")] == [0o700, 0o600]
    with pytest.raises(UserError, match="cannot be made: Not a directory"):
        find_secret()


@pytest.mark.parametrize("kind", ["open to others", "a link", "a file"])
def test_no_directory_that_others_may_have_made_is_used(tmp_path, monkeypatch, kind):
    (tmp_path / "config").write_text("a file")
    (tmp_path / "elsewhere").mkdir(0o700)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    folder = tmp_path / f"unisono-{os.geteuid()}"
    if kind == "a link":
        folder.symlink_to(tmp_path / "elsewhere")
    elif kind == "a file":
        folder.write_text(WORDS)
    else:
        folder.mkdir()
        folder.chmod(0o770)
    with pytest.raises(UserError, match="cannot be made: Not a directory"):
        find_secret(one_machine=True)
    assert [path for path in tmp_path.rglob("secret")] == []


def test_a_user_without_a_home_is_told(monkeypatch):
    def raises(*_):
        raise KeyError("13")

    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", raises)
    with pytest.raises(UserError, match=r"no home directory.*\nHINT: set UNISONO_SECRET"):
        find_secret()
