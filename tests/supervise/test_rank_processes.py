"""Stacks of ranks that run, are stopped or are in C code: whole, at the first try, however slowly they come."""

import ctypes
import fcntl
import os
import signal
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from unisono.supervise import rank_processes as module
from unisono.supervise.children import readable
from unisono.supervise.processes import ProcessGroup, run_child
from unisono.supervise.rank_processes import ASK, END, INCOMPLETE, INSIST, Stacks

Life = Callable[[Stacks, Callable[[Any], None]], Any]
"""life(stacks, report): that of a rank, which reports when it is where it is to be looked at."""


@pytest.fixture(autouse=True)
def long_waits(monkeypatch) -> None:
    """For a busy machine."""
    monkeypatch.setattr(module, "WAITS", {ASK: 30.0, INSIST: 30.0})


@contextmanager
def ranks(folder: Path | None, *lives: Life) -> Iterator[tuple[Stacks, ProcessGroup]]:
    told: list[int] = []
    with (
        closing(Stacks(len(lives), folder)) as stacks,
        closing(ProcessGroup(lambda rank, _: told.append(rank), 0.0)) as process_group,
    ):
        for slot, life in enumerate(lives):

            def live(report: Any, slot: int = slot, life: Life = life) -> Any:
                stacks.listen(slot)
                return life(stacks, report)

            process_group.start(slot, lambda sink, live=live: run_child(live, sink))
        while len(told) < len(lives):
            assert process_group.poll(10.0) == []
        yield stacks, process_group


def spinning(stacks: Stacks, report: Any) -> None:
    report("up")
    while True:
        pass


def stopped(stacks: Stacks, report: Any) -> None:
    report("up")
    signal.raise_signal(signal.SIGSTOP)
    while True:
        signal.pause()


def in_c(stacks: Stacks, report: Any) -> None:
    """A call that keeps the interpreter's lock and is not interrupted: no Python code runs any more."""
    lock = (ctypes.c_char * 64)()
    libc = ctypes.PyDLL(None)
    libc.pthread_mutex_lock(lock)
    report("up")
    libc.pthread_mutex_lock(lock)


def unasked(stacks: Stacks, report: Any) -> None:
    """Who is not reached by the first signal answers the second."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {ASK})
    report("up")
    while True:
        pass


def without_end(stacks: Stacks, report: Any) -> None:
    signal.set_wakeup_fd(-1)
    unasked(stacks, report)


def threaded(stacks: Stacks, report: Any) -> None:
    def beside() -> None:
        report("up")
        threading.Event().wait()

    threading.Thread(target=beside, daemon=True).start()
    while True:
        pass


def deep(stacks: Stacks, report: Any) -> None:
    def sink(level: int) -> None:
        if level:
            sink(level - 1)
        report("up")
        while True:
            pass

    sink(60)


def calling(stacks: Stacks, report: Any) -> None:
    """Frames come and go all the time."""

    def add(a: int, b: int) -> int:
        return a + b

    report("up")
    while True:
        sum(add(number, number) for number in range(10))


@pytest.mark.parametrize("life", [spinning, stopped, in_c, unasked, threaded, deep, calling])
def test_a_stack_is_whole_and_says_where(tmp_path, monkeypatch, life):
    if life in (in_c, unasked):  # who does not answer the first signal
        monkeypatch.setitem(module.WAITS, ASK, 0.1)
    with ranks(tmp_path / "log", life) as (stacks, process_group):
        path = stacks.save(process_group, 0)
    assert path == tmp_path / "log" / "rank-0.stack"
    text = path.read_bytes()
    assert f"in {life.__name__}\n".encode() in text
    assert text.count(b"(most recent call first):\n") == (2 if life is threaded else 1)
    assert INCOMPLETE not in text
    if life is deep:
        assert text.count(b" in sink\n") == 61
    if life is threaded:
        assert b" in beside\n" in text


def test_each_has_its_own(tmp_path):
    with ranks(tmp_path, spinning, stopped) as (stacks, process_group):
        paths = [stacks.save(process_group, slot) for slot in (1, 0)]
    assert [path.name for path in paths] == ["rank-1.stack", "rank-0.stack"]
    assert "in stopped" in paths[0].read_text()
    assert "in spinning" in paths[1].read_text()


def test_asked_again_and_again_it_answers_and_lives(tmp_path):
    """While frames come and go: were they read in the middle of an instruction, one in a thousand would be the last."""
    with ranks(tmp_path, calling) as (stacks, process_group):
        for _ in range(300):
            path = stacks.save(process_group, 0)
        assert process_group.poll(0.0) == []
    text = path.read_text()
    assert text.count(" in calling\n") == text.count("(most recent call first):\n") == 300
    assert INCOMPLETE.decode() not in text


def test_a_stack_that_comes_slowly_is_waited_for(tmp_path):
    """Its second half is written when the first has been taken."""

    def slowly(stacks: Stacks, report: Any) -> None:
        source, sink = stacks._pipes[0]

        def write(number: int, frame: object) -> None:
            os.write(sink, b'  File "first half')
            while fcntl.ioctl(source, termios.FIONREAD, b"\0" * 4) != b"\0" * 4:
                pass
            os.write(sink, b' and second", line 1\n' + END)

        signal.signal(ASK, write)
        report("up")
        while True:
            signal.pause()

    with ranks(tmp_path, slowly) as (stacks, process_group):
        assert stacks.save(process_group, 0).read_text() == '  File "first half and second", line 1\n'


def test_what_was_left_of_an_older_question_is_not_taken_for_the_answer(tmp_path):
    with ranks(tmp_path, spinning) as (stacks, process_group):
        os.write(stacks._pipes[0][1], b"left over" + END)
        assert "left over" not in stacks.save(process_group, 0).read_text()


def test_a_rank_to_whom_nobody_listens_goes_on(tmp_path):
    """Its pipe is full then."""

    def talking(stacks: Stacks, report: Any) -> None:
        report("up")
        for _ in range(2000):
            signal.raise_signal(ASK)
        report("through")
        signal.pause()

    with ranks(tmp_path, talking) as (_, process_group):
        told: list[Any] = []
        process_group._on_report = lambda rank, value: told.append(value)
        while not told:
            assert process_group.poll(10.0) == []
    assert told == ["through"]


def deaf(stacks: Stacks, report: Any) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {ASK, INSIST})
    spinning(stacks, report)


@pytest.mark.parametrize("life", [without_end, deaf])
def test_what_does_not_come_in_time_is_not_waited_for(tmp_path, monkeypatch, life):
    monkeypatch.setattr(module, "WAITS", {ASK: 0.01, INSIST: 0.5})
    with ranks(tmp_path, life) as (stacks, process_group):
        send = process_group.signal

        def signal_and_wait(rank: int, number: int) -> None:
            """The time counts from when the answer begins."""
            send(rank, number)
            if number == INSIST and life is without_end:
                assert readable(stacks._pipes[rank][0], 30.0)

        monkeypatch.setattr(process_group, "signal", signal_and_wait)
        path = stacks.save(process_group, 0)
    if life is deaf:
        assert path is None
        assert list(tmp_path.iterdir()) == []
    else:
        assert path.read_bytes().endswith(INCOMPLETE)
        assert b" in without_end\n" in path.read_bytes()


def test_no_folder_no_stack():
    with ranks(None, spinning) as (stacks, process_group):
        assert stacks.save(process_group, 0) is None


def test_a_stack_goes_to_no_other_place_than_its_folder(tmp_path):
    outside, log = tmp_path / "outside", tmp_path / "run" / "log"
    outside.mkdir()
    log.parent.mkdir()
    log.symlink_to(outside)
    with ranks(log, spinning) as (stacks, process_group):
        assert stacks.save(process_group, 0) is None
        log.unlink()
        log.mkdir()
        (log / "rank-0.stack").symlink_to(outside / "new")
        assert stacks.save(process_group, 0) is None
        (log / "rank-0.stack").unlink()
        assert stacks.save(process_group, 0) == log / "rank-0.stack"
    assert list(outside.iterdir()) == []
