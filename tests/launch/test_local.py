"""`unisono.run`: results, failures, and that nothing survives, however it ends."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

import unisono
from support.needs import needs_torch
from unisono.environment.os_environ import child_environment
from unisono.errors import CommTimeout, RankFailed, UserError
from unisono.launch import local
from unisono.messages.packing import pack, unpack
from unisono.supervise.children import Subprocess


def who(world):
    return [world.rank, world.size, os.getpid()]


def test_results_come_in_rank_order():
    found = unisono.run(who, 3)
    assert [entry[:2] for entry in found] == [[0, 3], [1, 3], [2, 3]]
    assert len({os.getpid(), *(entry[2] for entry in found)}) == 4


def test_fresh_interpreters_give_the_same():
    assert [entry[:2] for entry in unisono.run(who, 2, start="fresh")] == [[0, 2], [1, 2]]


def test_large_results_pass():
    (found,) = unisono.run(lambda world: {"x": np.arange(5_000_000, dtype=np.float32), "name": "é"}, 1)
    assert found["name"] == "é"
    np.testing.assert_array_equal(found["x"], np.arange(5_000_000, dtype=np.float32))


def test_ranks_report_while_they_work():
    told = []

    def work(world):
        for number in range(3):
            world.report({"number": number, "text": "two\nlines"})
            world.comm.barrier()
        return world.rank

    assert unisono.run(work, 2, on_report=lambda rank, value: told.append((rank, value["number"]))) == [0, 1]
    assert sorted(told) == [(rank, number) for rank in range(2) for number in range(3)]
    assert [number for rank, number in told if rank == 1] == [0, 1, 2]


def test_join_inside_a_rank_is_refused():
    with pytest.raises(RankFailed, match=r"this process is rank . of 2 of unisono\.run"):
        unisono.run(lambda world: unisono.join().size, 2)


def test_threads_of_a_rank_are_waited_for(tmp_path):
    def work(world):
        def late():
            world_done.wait(20)
            (tmp_path / "late").write_text("done")

        world_done = threading.Event()
        threading.Thread(target=late).start()
        threading.Timer(0.1, world_done.set).start()

    unisono.run(work, 1)
    assert (tmp_path / "late").read_text() == "done"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        *(({"ranks": ranks}, "ranks is") for ranks in (2.0, "2", None, True)),
        *(({"ranks": ranks}, f"ranks is {ranks}") for ranks in (0, -1)),
        *(({"timeout_s": odd}, "timeout_s is") for odd in (0, -1, float("nan"), float("inf"), None, "2")),
        ({"work": None}, "work is None"),
        ({"start": "spawn"}, "unknown start 'spawn'; there are: auto, fork, fresh"),
    ],
)
def test_odd_arguments_are_refused(given, message):
    with pytest.raises(UserError, match=message):
        unisono.run(**{"work": who, "ranks": 2} | given)


def test_values_survive_packing():
    value = {"a": [1, 2.5, None, True, "x"], "b": {"c": np.float32([[1, 2]])}, "d": np.int64(3)}
    found = unpack(pack(value))
    assert found["a"] == value["a"]
    assert found["d"] == 3
    assert found["b"]["c"].dtype == np.float32


@pytest.mark.parametrize(
    "value", [1j, np.longdouble(1), np.zeros(2, "S3"), {"__array__": 1}, {1: 2}, np.datetime64("2026-01-01"), object()]
)
def test_odd_values_are_refused(value):
    with pytest.raises(UserError, match="cannot be handed back"):
        pack(value)


def test_ctrl_c_does_not_reach_the_ranks():
    def work(world):
        os.kill(os.getpid(), signal.SIGINT)
        return world.rank

    assert unisono.run(work, 2) == [0, 1]


def test_ctrl_c_while_ranks_are_being_ended_leaves_nobody(monkeypatch):
    """The second Ctrl-C comes during the grace of the first; it must not cut the clean-up short."""
    pids = []

    def on_report(rank, pid):
        pids.append(pid)
        if len(pids) == 2:
            raise KeyboardInterrupt

    def work(world):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        world.report(os.getpid())
        while True:
            signal.pause()

    send, again = signal.pidfd_send_signal, [signal.SIGINT]

    def send_and_interrupt(pidfd: int, number: int) -> None:
        send(pidfd, number)
        if number == signal.SIGTERM and again:
            os.kill(os.getpid(), again.pop())  # while the stubborn ranks have their grace

    monkeypatch.setattr(signal, "pidfd_send_signal", send_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        unisono.run(work, 2, on_report=on_report)
    assert again == []
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_many_open_descriptors_are_no_obstacle():
    """`select` knows none above 1023."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(4096, hard[1])
    if wanted < 1500:
        pytest.skip("no more than 1024 descriptors are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard[1]))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1200)]
    try:
        with pytest.raises(RankFailed, match="ValueError: no"):
            unisono.run(fails_on_rank_1, 3)
    finally:
        for fd in opened:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, hard)


def fails_on_rank_1(world):
    if world.rank == 1:
        raise ValueError("no")
    world.comm.barrier()


def test_a_script_without_a_guard_is_explained(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import unisono\ndef work(world): return 1\nunisono.run(work, 2, start='fresh')\n")
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "HINT: put the call under `if __name__ == '__main__':`" in ended.stderr


def test_a_function_hidden_from_fresh_interpreters_is_explained(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import unisono\n"
        "if __name__ == '__main__':\n"
        "    def work(world): return 1\n"
        "    try: unisono.run(work, 2, start='fresh')\n"
        "    except unisono.RankFailed as error: print(error)\n"
    )
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True)
    assert "work is not defined when" in ended.stdout
    assert "HINT: define it at the top level" in ended.stdout
    assert ended.stderr == ""


def test_what_cannot_be_handed_back_is_named():
    with pytest.raises(
        RankFailed, match=r"a rank returned a set, which cannot be handed back\nHINT: return numbers"
    ) as caught:
        unisono.run(lambda world: {1, 2}, 2)
    assert caught.value.exit_code == 2


def test_the_failing_rank_is_shown_once_and_the_others_end():
    def work(world):
        if world.rank == 1:
            raise ValueError("rank one had enough")
        world.comm.barrier()  # waits for a rank that never comes

    start = time.monotonic()
    with pytest.raises(RankFailed) as caught:
        unisono.run(work, 3, timeout_s=60)
    assert time.monotonic() - start < 30  # not the time-out of the others
    assert caught.value.rank == 1
    assert str(caught.value).count("ValueError: rank one had enough") == 1


@pytest.mark.parametrize(
    ("leave", "told"),
    [
        (lambda: os._exit(0), "ended with exit code 0 and gave no result"),
        (lambda: sys.exit(3), r"(.|\n)*SystemExit: 3"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "was killed by SIGKILL"),
    ],
    ids=["quietly", "sys.exit", "killed"],
)
def test_a_rank_that_leaves_is_no_success_and_named(leave, told):
    def work(world):
        if world.rank == 2:
            leave()
        world.comm.barrier()

    with pytest.raises(RankFailed, match=f"rank 2: {told}"):
        unisono.run(work, 3, timeout_s=60)


def test_a_rank_that_ignores_sigterm_is_killed():
    def work(world):
        if world.rank == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            world.comm.barrier()
            while True:
                signal.pause()
        world.comm.barrier()
        raise RuntimeError("over")

    with pytest.raises(RankFailed, match="over"):
        unisono.run(work, 2)


def test_a_function_that_cannot_be_found_by_name_is_copied():
    factor = 3
    assert unisono.run(lambda world: factor * world.rank, 2, start="fresh") == [0, 3]


def test_a_function_that_can_neither_be_found_nor_copied_is_refused(monkeypatch):
    lock = threading.Lock()
    with pytest.raises(UserError, match=r"<lambda> cannot be copied to a fresh interpreter: TypeError: cannot pickle"):
        unisono.run(lambda world: lock, 2, start="fresh")
    monkeypatch.setattr("unisono.launch.function_passing.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"cannot be found by name .* cloudpickle.* not installed\nHINT: pip install"):
        unisono.run(lambda world: None, 2, start="fresh")


def test_more_memory_than_there_is_is_refused(monkeypatch):
    monkeypatch.setattr("unisono.arena.memory.segment.available_bytes", lambda: 1000)
    with pytest.raises(UserError, match="of shared memory are needed, 1000 B are available"):
        unisono.run(who, 2)


# -- the whole program, killed from outside

SLEEPER = """
import os, signal, numpy as np, unisono
def work(world):
    pids = world.comm.gather(np.array([os.getpid()]))
    if world.rank == 0:
        print(*pids[:, 0], flush=True)
    signal.pause()
unisono.run(work, 3)
"""


def start_sleeper() -> tuple[subprocess.Popen, list[psutil.Process]]:
    """A program of three ranks that are all up, in a process group of its own."""
    program = subprocess.Popen(
        [sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )
    ranks = [psutil.Process(int(pid)) for pid in program.stdout.readline().split()]
    assert len(ranks) == 3
    return program, ranks


@pytest.mark.parametrize(
    ("signum", "send"),
    [(signal.SIGKILL, os.kill), (signal.SIGTERM, os.kill), (signal.SIGINT, os.kill), (signal.SIGINT, os.killpg)],
)
def test_nothing_survives_the_parent(signum, send):
    program, ranks = start_sleeper()
    send(program.pid, signum)
    _, errors = program.communicate(timeout=30)
    _, alive = psutil.wait_procs(ranks, timeout=10)
    assert alive == []
    assert program.returncode == -signum or (signum == signal.SIGINT and program.returncode)
    if signum == signal.SIGINT:
        assert errors.count("KeyboardInterrupt") == 1  # the parent's alone, also if the whole group was struck


def test_a_subprocess_ends_with_its_block():
    command = [sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()"]
    with Subprocess(command, child_environment(None), subprocess.DEVNULL) as child:
        assert next(child.lines(silence_s=20)) == "up"
    assert child.wait() == -signal.SIGTERM


def test_any_byte_may_be_printed_and_an_output_that_ends_early_is_a_time_out():
    program = "import os, signal; os.write(1, b'L\\xe4ufe\\n'); os.close(1); signal.pause()"
    command = [sys.executable, "-c", program]
    with Subprocess(command, child_environment(None), subprocess.DEVNULL) as child:
        assert list(child.lines(silence_s=20)) == ["L\ufffdufe"]
        with pytest.raises(CommTimeout, match=r"closed its output and went on for 0.01 s"):
            child.wait(0.01)


TORCH_PARENT = """
import sys, torch, unisono
def work(world):
    x = torch.ones(600, 600, requires_grad=True)
    (x @ x).sum().backward()      # hangs in a forked child whose parent already has torch's threads
    return float(x.grad[0, 0])
if __name__ == "__main__":
    from unisono.launch.local import torch_threads_running
    assert not torch_threads_running()  # imported is not used
    torch.set_num_threads(2)
    work(None)
    assert torch_threads_running()
    print(unisono.run(work, 1))
    assert torch_threads_running()  # also after a fork, which ends the threads of BLAS
    print(unisono.run(work, 1))
    print(unisono.run(lambda world: 7 + world.rank, 2))
    try:
        unisono.run(work, 2, start="fork")
    except unisono.UserError as error:
        print(error)
"""


@needs_torch
def test_a_parent_that_used_torch_gets_fresh_interpreters_or_a_refusal(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(TORCH_PARENT)
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("[1200.0]") == 2
    assert "ranks are fresh interpreters" in ended.stderr
    assert "[7, 8]" in ended.stdout
    assert ended.stderr.count("ranks are fresh interpreters") == 2  # a copy is as things are here: nothing to warn of
    assert "a forked rank that uses torch would hang" in ended.stdout


@pytest.mark.parametrize(
    ("name", "flags", "running"),
    [("python", 0x400040, True), ("python", 0x400044, False), ("ZMQbg/IO/0", 0x400040, False), ("a) (b", 0x40, True)],
)
def test_threads_that_stop_a_fork(monkeypatch, tmp_path, name, flags, running):
    """One that has ended, and was joined, is listed until it has got a core once more: that may take long."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "stat").write_text(f"1 ({name}) S 1 1 1 0 -1 {flags} 0 0\n")
    (tmp_path / "2").mkdir()  # it vanishes just then
    monkeypatch.setitem(sys.modules, "torch", sys.modules.get("torch", object()))
    monkeypatch.setattr(local, "_TASKS", tmp_path)
    assert local.torch_threads_running() == running


def test_ranks_have_names_to_find_them_by():
    names = unisono.run(lambda world: Path("/proc/self/comm").read_text().strip(), 2)
    assert names == ["unisono-rank0", "unisono-rank1"]
