"""`unisono watch` and `unisono train --watch` as a user meets them: real processes, a real browser."""

import http.client
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support.cli.terminals import on_terminal
from support.cli.train_command import UNISONO as COMMAND
from support.cli.train_command import train
from support.commands import put_command
from support.report.made_run import make
from unisono.runs import live_page as watching

ADDRESS = re.compile(r"(http://127\.0\.0\.1:(\d+)/([\w-]{32})/)")
PLACE = re.compile(r"Live page, on \S+: http://127\.0\.0\.1:\d+/ \(with a token; the whole address is in (.+)\)")
LONG = ["train", "--epochs", "400", "--batch-size", "16", "--lr", "0.0001", "--slow", "0:30"]
"""Not over before it is looked at."""


@pytest.fixture
def started() -> Iterator:
    """Starts the command and gives it back with the match of its address, from the file that it names."""
    commands = []

    def start(*arguments: str):
        command = subprocess.Popen(
            [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )
        commands.append(command)
        for line in command.stdout:
            assert not ADDRESS.search(line), "others may read the output"
            if place := PLACE.fullmatch(line.rstrip("\n")):
                return command, ADDRESS.fullmatch(Path(place[1]).read_text().rstrip("\n"))
        raise AssertionError(f"no address: {command.stderr.read()}")

    yield start
    for command in commands:
        command.kill()
        command.communicate(timeout=60)


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_run_that_has_ended_is_served_until_ctrl_c(started, tmp_path):
    """Others may read the output: it names a file for its owner alone."""
    run = make(tmp_path / "a run")
    command, found = started("watch", str(run))
    port, kept = int(found[2]), run / "live_page.txt"
    assert (kept.stat().st_mode & 0o777, kept.read_text()) == (0o600, f"{found[1]}\n")
    assert found[3] not in " ".join(psutil.Process(command.pid).cmdline())
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    for path, status in ((f"/{found[3]}/", 200), ("/wrong/", 403)):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status
    connection.close()
    (kernel,) = (entry for entry in psutil.net_connections() if entry.laddr.port == port and entry.status == "LISTEN")
    assert kernel.laddr.ip == "127.0.0.1"
    command.send_signal(signal.SIGINT)
    assert command.wait(30) == 0
    assert command.stderr.read() == ""
    assert found[3] not in command.stdout.read()
    assert not kept.exists()
    assert not is_listening(port)


def test_a_terminal_shows_the_whole_address(tmp_path):
    run = make(tmp_path / "run")
    code, shown = on_terminal([*COMMAND, "watch", str(run), "--until-end"], "stdout")
    assert code == 0
    assert ADDRESS.search(shown.decode())
    assert not (run / "live_page.txt").exists()


@pytest.mark.parametrize("terminal", [False, True])
def test_a_run_s_page_is_told_whether_it_may_print_the_token(monkeypatch, tmp_path, capsys, terminal):
    monkeypatch.setattr(watching.sys, "executable", str(put_command(tmp_path, "told", 'echo "$@"')))
    monkeypatch.setattr(watching.sys.stdout, "isatty", lambda: terminal)
    with watching.live_page(tmp_path):
        pass
    assert ("--print-token" in capsys.readouterr().out) is terminal


def test_a_closed_output_is_not_a_terminal(monkeypatch):
    monkeypatch.setattr(watching.sys, "stdout", None)
    assert not watching.may_show_token()


def test_the_curve_grows_while_a_run_trains(started, tmp_path):
    from support.report import browsing

    if browsing.CHROMIUM is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    run = tmp_path / "run"
    command, found = started(*LONG, "--watch", "--out", str(run))
    epochs = "() => Number(/with (\\d+) of/.exec(document.querySelector('#verdict').innerText)[1])"
    with browsing.browser_pages(f"http://127.0.0.1:{found[2]}/") as open_page:
        page = open_page(found[1])
        seen = page.evaluate(epochs)
        page.wait_for_function(f"(seen) => ({epochs})() >= seen + 3", arg=seen, timeout=60_000)
        line = browsing.figure(page, "Loss").locator("path.line").first
        path = line.get_attribute("d")
        page.wait_for_function(
            "(path) => document.querySelector('path.line').getAttribute('d') !== path", arg=path, timeout=60_000
        )
        command.send_signal(signal.SIGTERM)  # ends in good order, and whoever looks is shown how
        page.get_by_text("Live: the run has ended").wait_for(timeout=60_000)
        page.locator("#verdict", has_text="halted").wait_for(timeout=60_000)
        # What follows is a page whose server has ended, which chromium logs as an error.
        page.close()
    assert command.wait(60) == 75
    assert not is_listening(int(found[2]))


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_the_page_ends_with_the_run_whatever_ends_it(started, signum, tmp_path):
    command, found = started(*LONG, "--watch", "--out", str(tmp_path / "run"))
    tree = psutil.Process(command.pid).children(recursive=True)
    (page,) = (child for child in tree if "watch" in child.cmdline())
    command.send_signal(signum)
    command.wait(60)
    _, alive = psutil.wait_procs([page], timeout=30)
    assert alive == []
    assert not is_listening(int(found[2]))


def test_a_short_run_with_a_page_that_nobody_opens_ends_at_once(tmp_path):
    ended = train("--epochs", "2", "--watch", "--out", str(tmp_path / "run"), cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert PLACE.search(ended.stdout)[1] == f"{tmp_path}/run/live_page.txt"
    assert not (tmp_path / "run" / "live_page.txt").exists()
    assert "everything is in" in ended.stdout
    assert "watch" not in (tmp_path / "run" / "recipe.toml").read_text()


def test_a_desktop_s_browser_is_given_a_file_that_only_its_owner_may_read(started, monkeypatch, tmp_path):
    """Not the address, which holds the token: everybody may read the command lines of others."""
    body = f'echo "$1" > {tmp_path}/given.part; mv {tmp_path}/given.part {tmp_path}/given'
    monkeypatch.setenv("BROWSER", str(put_command(tmp_path, "browser", body)))
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    command, found = started("watch", str(make(tmp_path / "run")))
    while not (tmp_path / "given").exists():
        assert command.poll() is None
        time.sleep(0.02)
    given = (tmp_path / "given").read_text().strip()
    assert found[3] not in given
    page = Path(given.removeprefix("file://"))
    assert page.stat().st_mode & 0o777 == 0o600
    assert found[1] in page.read_text()
    command.send_signal(signal.SIGTERM)
    assert command.wait(30) == 0
    assert not page.parent.exists()


@pytest.mark.parametrize("program", [shutil.which("false"), "/there/is/none"])
def test_a_page_that_cannot_be_served_does_not_stop_the_training(program, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(watching.sys, "executable", program)
    with watching.live_page(tmp_path):
        pass
    assert "the live page could not be served" in capsys.readouterr().err


def test_a_page_that_takes_too_long_to_end_changes_nothing_of_the_runs_end(monkeypatch, tmp_path, capsys):
    slow = put_command(tmp_path, "slow", "echo Live page: here\nexec >&-\nexec sleep 60")
    monkeypatch.setattr(watching.sys, "executable", str(slow))
    monkeypatch.setattr(watching, "END_S", 0.1)
    with watching.live_page(tmp_path):
        pass
    assert capsys.readouterr() == ("Live page: here\n", "")


def test_the_terminal_follows_a_run_until_it_ends(tmp_path):
    run = make(tmp_path / "run")
    (run / "summary.json").rename(tmp_path / "summary.json")

    def end_it(shown: bytes) -> None:
        if b"going on" in shown and not (run / "summary.json").exists():
            (tmp_path / "summary.json").rename(run / "summary.json")

    code, shown = on_terminal([*COMMAND, "watch", str(run), "--terminal"], "stdout", "stderr", seen=end_it)
    assert code == 0
    assert b"finished" in shown
    assert b"test accuracy" in shown
