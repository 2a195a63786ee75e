"""Signals are requests: the first of a kind is passed on, the second ends. What is ignored, or a child's, is not."""

import os
import signal
import threading
from contextlib import suppress

import pytest

from unisono.supervise.children import defer_signals, reap
from unisono.supervise.signals import (
    SIGNALS,
    as_ctrl_c,
    exit_undisturbed,
    finish_undisturbed,
    ignore_requests,
    ignore_signals_after,
    stop_requests,
)


def test_the_first_of_each_kind_asks_and_the_second_ends(monkeypatch):
    monkeypatch.setattr("unisono.supervise.signals.REPEAT_S", 0.0)
    asked = []
    with stop_requests(lambda: asked.append(1)):
        for number in SIGNALS:
            signal.raise_signal(number)
        assert len(asked) == len(SIGNALS)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGUSR1)
    assert len(asked) == len(SIGNALS)


def test_what_comes_twice_within_seconds_is_one_request_but_for_ctrl_c():
    """SLURM sends SIGTERM to all processes of a step, and torchrun, one of them, sends its own to its ranks."""
    asked = []
    with stop_requests(lambda: asked.append(1)):
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
        assert len(asked) == 3
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_whatever_ends_as_ctrl_c_does_interrupts_once():
    """Service managers send SIGHUP after SIGTERM; a person's Ctrl-C still ends what takes too long."""
    with as_ctrl_c():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGTERM):
            signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_afterwards_all_is_as_before():
    before = [signal.getsignal(number) for number in SIGNALS]
    with suppress(ValueError), stop_requests(lambda: None):
        assert signal.getsignal(signal.SIGTERM) != before[0]
        raise ValueError("mine")
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_whoever_leaves_ignores_further_requests_but_for_ctrl_c():
    asked = []
    with stop_requests(lambda: asked.append(1)):
        with stop_requests(lambda: asked.append(2)):
            signal.raise_signal(signal.SIGTERM)
            ignore_requests()
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGUSR1)
    assert asked == [2]
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


def test_whoever_has_finished_ignores_all_but_a_second_ctrl_c_until_it_exits():
    with stop_requests(lambda: pytest.fail("it was asked")):
        finish_undisturbed()
        for number in SIGNALS:
            signal.raise_signal(number)
    for number in SIGNALS[:-1]:
        signal.raise_signal(number)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    exit_undisturbed()
    for number in SIGNALS:
        signal.raise_signal(number)


def test_what_is_ignored_stays_ignored():
    """nohup means it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        asked = []
        with stop_requests(lambda: asked.append(1)):
            signal.raise_signal(signal.SIGHUP)
        assert asked == []
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_child_that_was_forked_meanwhile_is_ended_and_nobody_is_asked():
    """Workers of a DataLoader are ended by SIGTERM: that must not end the run."""
    reader, writer = os.pipe()
    with stop_requests(lambda: os.write(writer, b"asked") and None), defer_signals():
        pid = os.fork()  # not `fork_child`, which puts handlers back
        if not pid:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        status = reap(pid)
    os.close(writer)
    assert os.read(reader, 100) == b""
    os.close(reader)
    assert os.WTERMSIG(status) == signal.SIGTERM


def test_other_threads_leave_signals_alone():
    before, seen = signal.getsignal(signal.SIGTERM), []

    def work() -> None:
        with stop_requests(lambda: None):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


@pytest.mark.parametrize("failure", [ValueError, KeyError])
def test_who_leaves_for_a_lost_rank_is_not_told_to_leave(failure):
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(failure), ignore_signals_after(ValueError), stop_requests(lambda: None):
            raise failure
        assert signal.getsignal(signal.SIGTERM) is (signal.SIG_IGN if failure is ValueError else before)
    finally:
        signal.signal(signal.SIGTERM, before)
