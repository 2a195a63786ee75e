"""`launch_script`: what ranks are told, how their output is passed on, and how they end together."""

import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from unisono.cli.launch import mark_script
from unisono.errors import UserError
from unisono.launch.script_options import ScriptOptions, check_script

COMMAND = [sys.executable, "-P", "-m", "unisono", "launch"]
TELL = "import os; print(*(os.environ[n] for n in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'OMP_NUM_THREADS')), flush=True)"


def script(folder: Path, text: str) -> str:
    path = folder / "script.py"
    path.write_text(textwrap.dedent(text))
    return str(path)


def launched(folder: Path, text: str, *options: str, arguments: tuple[str, ...] = (), **more):
    return subprocess.run(
        [*COMMAND, *options, script(folder, text), *arguments],
        capture_output=True, text=True, timeout=100, check=False, **more,
    )  # fmt: skip


def test_ranks_get_what_torchrun_would_tell_them(tmp_path):
    ended = launched(tmp_path, TELL, "--ranks", "3", "--threads", "2", env=without_threads())
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == ["0 3 0 2", "1 3 1 2", "2 3 2 2"]


def test_threads_are_those_of_the_option_else_of_the_users_variable(tmp_path):
    environment = without_threads() | {"OMP_NUM_THREADS": "5"}
    text = "import os; print(*(os.environ.get(n) for n in ('OMP_NUM_THREADS', 'MKL_NUM_THREADS')))"
    for options, wanted in (
        (["--ranks", "1"], "5 None"),
        (["--ranks", "1", "--threads", "3"], "3 3"),
        (["--virtual-ranks", "1"], "1 1"),
    ):
        assert launched(tmp_path, text, *options, env=environment).stdout == f"{wanted}\n"


def test_a_reader_that_goes_away_ends_the_ranks(tmp_path):
    text = """
        import time
        for number in range(1000):
            print(number, flush=True)
            time.sleep(0.05)
    """
    process = subprocess.Popen(
        [*COMMAND, "--ranks", "2", script(tmp_path, text)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=40) == 128 + signal.SIGPIPE


def test_progress_bars_and_long_lines_are_passed_on_as_they_come(tmp_path):
    text = """
        import sys
        for number in range(2000):
            sys.stdout.write(f"\\r{number:>5} " + "x" * 500)
        sys.stdout.write("y" * 300_000)
    """
    ended = launched(tmp_path, text, "--ranks", "1")
    assert ended.returncode == 0
    assert ended.stdout.count("x") == 1_000_000
    assert ended.stdout.count("y") == 300_000


def test_a_child_that_keeps_the_pipe_and_writes_on_does_not_keep_the_launcher(tmp_path):
    """The last line of the rank is shown, though it has no end."""
    text = """
        import subprocess, sys
        child = subprocess.Popen(["timeout", "20", "yes"])
        print(f"child {child.pid}", flush=True)
        sys.stderr.write("last words")
    """
    process = subprocess.Popen(
        [*COMMAND, "--ranks", "1", script(tmp_path, text)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    child = 0
    while not child:
        line = process.stdout.readline()
        child = int(line.split()[1]) if line.startswith("child") else 0
    try:
        with process.stdout, process.stderr:
            process.stdout.close()
            assert process.wait(timeout=15) in (0, 128 + signal.SIGPIPE)
    finally:
        os.kill(child, signal.SIGKILL)


def test_the_cause_is_shown_and_not_what_others_say_of_it(tmp_path):
    """The rank that lost another one ends first, as it does where the cause still cleans up."""
    text = """
        import os, time
        if os.environ["RANK"] == "0":
            from unisono.errors import CommTimeout
            raise CommTimeout("rank 1 has left")
        time.sleep(0.3)
        raise ValueError("the cause")
    """
    ended = launched(tmp_path, text, "--ranks", "2")
    assert "ValueError: the cause" in ended.stderr
    assert "rank 1: ended with exit code 1" in ended.stderr
    assert "has left" not in ended.stderr


def without_threads() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}


def test_arguments_of_the_script_are_its_own(tmp_path):
    text = "import sys; print(sys.argv[1:])"
    ended = launched(tmp_path, text, "--ranks", "1", arguments=("--ranks", "7", "--x=1", "-v"))
    assert ended.stdout == "['--ranks', '7', '--x=1', '-v']\n"


def test_lines_stay_whole_and_in_the_order_of_their_rank(tmp_path):
    text = """
        import os, sys
        for number in range(300):
            sys.stdout.write(os.environ["RANK"] * 50)
            sys.stdout.flush()
            print(f" {number}", flush=True)
        sys.stdout.write("end")
    """
    lines = launched(tmp_path, text, "--ranks", "3").stdout.splitlines()
    for rank in "012":
        assert [line for line in lines if line.startswith(rank * 50)] == [f"{rank * 50} {n}" for n in range(300)]
    assert [line for line in lines if line[0] not in "012"] == ["end"] * 3


def test_the_first_failure_ends_all_with_one_traceback(tmp_path):
    text = """
        import os, sys, time
        if os.environ["RANK"] == "1":
            raise ValueError("boom")
        try:
            time.sleep(60)
        finally:
            raise RuntimeError("rank 1 is gone")
    """
    begun = time.monotonic()
    ended = launched(tmp_path, text, "--ranks", "3")
    assert ended.returncode == 1
    assert ended.stderr.count("Traceback") == 1
    assert "ValueError: boom" in ended.stderr
    assert "unisono: rank 1: ended with exit code 1; the other ranks were ended" in ended.stderr
    assert time.monotonic() - begun < 50  # not the sleep


def test_exit_codes_and_signals_of_ranks_are_passed_on(tmp_path):
    text = "import os, sys; sys.exit(7)"
    assert launched(tmp_path, text, "--ranks", "2").returncode == 7
    ended = launched(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "--ranks", "1")
    assert ended.returncode == 1
    assert "was killed by SIGKILL" in ended.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_all_ranks_and_nothing_is_left(tmp_path, number, code):
    text = """
        import os, time
        print(os.getpid(), flush=True)
        time.sleep(60)
    """
    process = subprocess.Popen(
        [*COMMAND, "--ranks", "2", script(tmp_path, text)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        pids = [int(process.stdout.readline()) for _ in range(2)]
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in said
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_ranks_end_with_a_launcher_that_is_killed(tmp_path):
    text = """
        import os, time
        print(os.getpid(), flush=True)
        time.sleep(60)
    """
    with subprocess.Popen(
        [*COMMAND, "--ranks", "2", script(tmp_path, text)], stdout=subprocess.PIPE, text=True
    ) as process:
        fds = [os.pidfd_open(int(process.stdout.readline())) for _ in range(2)]
        process.kill()
        for fd in fds:
            assert select.select([fd], [], [], 30)[0]
            os.close(fd)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"ranks": -1}, "--ranks is -1"),
        ({"ranks": 2, "virtual_ranks": 2}, "both --ranks and --virtual-ranks"),
        ({"num_nodes": 2}, "without --main-address"),
        ({"main_address": "n1"}, "with --main-address"),
        ({"node_id": 1}, "--node-id 1 of --num-nodes 1"),
        ({"main_port": 80}, "--main-port is 80"),
        ({"num_nodes": 3, "main_address": "n1", "virtual_ranks": 2}, "--virtual-ranks 2 on 3 machines"),
    ],
)
def test_options_that_cannot_be(values, message):
    with pytest.raises(UserError, match=message):
        ScriptOptions(**values)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([], "no script"),
        (["--rnaks"], "--rnaks is no option"),
        (["/nowhere.py"], "no file /nowhere"),
        (["/"], "is a directory"),
    ],
)
def test_what_is_no_script(command, message):
    with pytest.raises(UserError, match=message):
        check_script(command)


@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_virtual_ranks_are_numbered_alike_on_any_layout(ranks):
    for machines in range(1, ranks + 1):
        placements = [
            placement
            for machine in range(machines)
            for placement in ScriptOptions(
                virtual_ranks=ranks, num_nodes=machines, node_id=machine, main_address="n0" if machines > 1 else ""
            ).placements(29500)
        ]
        assert [placement.rank for placement in placements] == list(range(ranks))
        assert {placement.size for placement in placements} == {ranks}
        assert {placement.node for placement in placements} == set(range(machines))


def test_options_end_where_the_script_begins():
    assert mark_script(["--ranks", "2", "a.py", "--ranks", "3"]) == ["--ranks", "2", "--", "a.py", "--ranks", "3"]
    assert mark_script(["--replace-gloo", "--ranks=2", "-m", "p"]) == ["--replace-gloo", "--ranks=2", "--", "-m", "p"]
    assert mark_script(["--help"]) == ["--help", "--"]


def test_rank_0_reads_what_is_piped_in_and_the_others_nothing(tmp_path):
    text = "import os, sys; print(os.environ['RANK'], repr(sys.stdin.read()), flush=True)"
    ended = launched(tmp_path, text, "--ranks", "2", input="some lines\n")
    assert sorted(ended.stdout.splitlines()) == ["0 'some lines\\n'", "1 ''"]


def test_variables_of_torchrun_that_are_left_over_do_not_count(tmp_path):
    """Also those of a rank that starts a script itself."""
    left = {"RANK": "3", "WORLD_SIZE": "5", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29999", "LOCAL_RANK": "7"}
    ended = launched(tmp_path, TELL, "--ranks", "2", "--threads", "1", env=os.environ | left)
    assert sorted(ended.stdout.splitlines()) == ["0 2 0 1", "1 2 1 1"], ended.stderr
    assert "RANK and WORLD_SIZE of the environment do not count here" in ended.stderr


def test_under_torchrun_each_rank_runs_the_script(tmp_path):
    text = TELL + "\nprint('by', os.environ['UNISONO_LAUNCHED'])"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, "-m", "unisono", "launch", "--threads", "1", script(tmp_path, text)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert sorted(ended.stdout.splitlines()) == ["0 2 0 1", "1 2 1 1", "by 1", "by 1"], ended.stderr


def test_a_closed_input_is_no_input(tmp_path):
    text = "import os, sys; print(os.environ['RANK'], repr(sys.stdin.read()), flush=True)"
    command = " ".join([*COMMAND, "--ranks", "2", script(tmp_path, text), "<&-"])
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=100, check=False)
    assert sorted(ended.stdout.splitlines()) == ["0 ''", "1 ''"], ended.stderr


def test_a_rank_that_ended_early_and_well_is_named_where_another_lost_it(tmp_path):
    text = """
        import os, sys, time
        from unisono.errors import RankLost
        if os.environ["RANK"] == "1":
            sys.exit(0)
        time.sleep(0.5)
        raise RankLost("rank 1 is gone", ranks=[1])
    """
    ended = launched(tmp_path, text, "--ranks", "2")
    assert ended.returncode == 1
    assert "rank 0: ended with exit code 1; rank 1 had ended before, with exit code 0" in ended.stderr


def test_a_launcher_that_is_killed_takes_ranks_along_that_ignore_signals(tmp_path):
    text = """
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print(os.getpid(), flush=True)
        time.sleep(100)
    """
    process = subprocess.Popen([*COMMAND, "--ranks", "2", script(tmp_path, text)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process:
        fds = [os.pidfd_open(int(process.stdout.readline())) for _ in range(2)]
        process.kill()
        for fd in fds:
            assert select.select([fd], [], [], 60)[0]
            os.close(fd)


@pytest.mark.parametrize(
    ("command", "problem", "hint"),
    [
        (["-m"], "-m without a module", "-m package.module"),
        (["--nproc-per-node", "2", "train.py"], "--nproc-per-node is no option", "did you mean --ranks?"),
        (["python", "train.py"], "there is no file python", "leave it out"),
        (["."], ". is a directory", "give a Python script"),
    ],
)
def test_habits_from_other_launchers(command, problem, hint):
    with pytest.raises(UserError) as caught:
        check_script(command)
    assert problem in caught.value.message
    assert hint in caught.value.hint
