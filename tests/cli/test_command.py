"""The command as a user meets it: help, Ctrl-C, files."""

import csv
import json
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import psutil
import pytest

from support.cli.forked_command import forked
from support.cli.terminals import on_terminal
from support.cli.train_command import UNISONO as COMMAND
from support.cli.train_command import started as unisono
from unisono import __version__
from unisono.cli.main import COMMANDS, app
from unisono.cli.train import MOST_USED, TITLES
from unisono.recipe import flag

QUICK = ["bench", "--transports", "shm", "--elements", "100,1000", "--seconds", "0.001"]


def test_it_starts_and_tells_its_version_and_its_commands():
    assert unisono("--version").stdout.strip() == __version__
    shown = forked("--help").stdout
    assert [name for name in COMMANDS if f"│ {name} " not in shown] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_its_defaults_and_an_example_that_it_accepts(name):
    shown = forked(name, "--help").stdout
    example = shown[shown.index("Example: unisono ") :].removeprefix("Example: unisono ").split()
    assert example[0] == name
    assert "[default: " in shown or name in ("cancel", "data")
    app.parse_args(example, exit_on_error=False, print_error=False)


def test_the_options_of_train_are_in_groups():
    shown = forked("train", "--help").stdout
    assert [title for title in re.findall("─ ([A-Z][A-Za-z ]+) ─", shown) if title in TITLES] == TITLES
    opening = shown[shown.index(f"─ {TITLES[0]} ─") : shown.index(f"─ {TITLES[1]} ─")]
    assert [name for name in re.findall(r"│ (?:\* +)?(--[a-z-]+)", opening)] == [flag(name) for name in MOST_USED]
    assert "─ Parameters ─" not in shown


def test_results_are_shown_and_written(tmp_path: Path):
    out = tmp_path / "deep" / "results"
    ended = unisono(*QUICK, "--ranks", "1,2", "--out", str(out))
    assert ended.returncode == 0, ended.stderr
    assert "all-reduce on 2 ranks" in ended.stdout
    assert "Fastest on 2 ranks" in ended.stdout
    assert max(map(len, ended.stdout.splitlines()[:10])) <= 80
    rows = list(csv.DictReader((out / "bench.csv").read_text().splitlines()))
    assert len(rows) == len(json.loads((out / "bench.json").read_text())) == 2 * 2 * 7
    assert {row["correct"] for row in rows} == {"True"}
    assert (out / "bench.png").read_bytes().startswith(b"\x89PNG")
    again = unisono(*QUICK, "--out", str(out))
    assert again.returncode == 2
    assert "holds bench.csv, bench.json, bench.png already" in again.stderr


@pytest.mark.parametrize("transport", ["mpi", "gloo"])
def test_other_transports_are_started_by_the_command_itself(transport):
    if not find_spec({"mpi": "mpi4py", "gloo": "torch"}[transport]):
        pytest.skip(f"{transport} is not installed")
    ended = unisono("bench", "--transports", transport, "--elements", "0,1000", "--seconds", "0.001", "--ranks", "2,3")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count(" ok") == 2 * 2 * 7
    assert "WRONG" not in ended.stdout


@pytest.mark.parametrize(
    ("transport", "signum"),
    [*product(["shm", "mpi"], [signal.SIGINT, signal.SIGKILL]), ("gloo", signal.SIGKILL), ("shm", signal.SIGTERM)],
)
def test_nothing_survives_an_interrupted_bench(transport, signum):
    if transport != "shm" and not find_spec({"mpi": "mpi4py", "gloo": "torch"}[transport]):
        pytest.skip(f"{transport} is not installed")
    arguments = ["bench", "--transports", transport, "--elements", "1000", "--seconds", "60", "--ranks", "3"]
    command = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    me = psutil.Process(command.pid)
    workers: list[psutil.Process] = []
    while len(workers) < 3:  # until all ranks compute
        assert command.poll() is None, command.stderr.read()
        tree = me.children(recursive=True)
        workers = [child for child in tree if _computes(child)]
        time.sleep(0.02)  # looking takes the cores away from what is looked at
    command.send_signal(signum)
    _, errors = command.communicate(timeout=60)
    _, alive = psutil.wait_procs(tree, timeout=20)
    assert alive == []
    assert command.returncode == -(signal.SIGINT if signum == signal.SIGTERM else signum)  # it is taken for Ctrl-C
    assert "Traceback" not in errors


def _computes(process: psutil.Process) -> bool:
    """Whether it is a rank, and past its start."""
    with suppress(psutil.NoSuchProcess):
        return "bench_worker" in " ".join(process.cmdline()) and sum(process.cpu_times()[:2]) > 0.3
    return False


def test_a_terminal_gets_a_progress_bar():
    code, shown = on_terminal([*COMMAND, *QUICK], "stderr")
    assert code == 0
    assert b"14/14" in shown


INTERRUPTED = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, *more):
        if name == "unisono.cli.main":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from unisono.__main__ import main
main()
"""


def python(code: str) -> tuple[int, str, str]:
    command = [sys.executable, "-c", code, "--version"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return ended.returncode, ended.stdout, ended.stderr


def test_ctrl_c_while_it_is_being_imported_shows_no_traceback():
    assert python(INTERRUPTED) == (-signal.SIGINT, "", "")


def test_ctrl_c_that_is_ignored_stays_so_while_it_is_being_imported():
    ignored = INTERRUPTED.replace("import os, signal, sys", "import os, signal, sys; signal.signal(2, signal.SIG_IGN)")
    assert python(ignored) == (0, f"{__version__}\n", "")  # as under nohup


def test_once_it_is_imported_ctrl_c_is_the_command_s_to_handle():
    code = """
import signal
import unisono.cli.main
from unisono.__main__ import main
unisono.cli.main.main = lambda: print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
main()
"""
    assert python(code) == (0, "True\n", "")


def test_a_reader_that_goes_away_is_no_crash():
    command = subprocess.Popen([*COMMAND, *QUICK], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    command.stdout.close()
    errors = command.stderr.read()
    command.stderr.close()
    command.wait(60)
    assert "Traceback" not in errors
