"""Children that cannot outlive us; `test_local.py` ends whole programs, and looks for what they leave."""

import os
import subprocess
import sys

import pytest

from unisono.supervise.children import Subprocess, defer_signals, die_with_parent, fork_child, readable, reap


def test_a_child_whose_parent_ended_before_it_came_to_ask_for_its_own_end_ends_itself():
    """The kernel tells of ends that come after the question. This child asks about a process that is not its parent."""
    with defer_signals():
        pid = fork_child(lambda: die_with_parent(os.getpid()) or 0)
    assert os.waitstatus_to_exitcode(reap(pid)) == 1


@pytest.mark.parametrize("timeout_s", [0.0, 3e6, 1e300, float("inf")])
def test_any_time_can_be_waited(timeout_s):
    reading, writing = os.pipe()
    try:
        os.write(writing, b"1")
        assert readable(reading, timeout_s)
    finally:
        os.close(reading)
        os.close(writing)


def test_a_last_line_without_an_end_is_a_line():
    command = [sys.executable, "-c", "print('a'); print('b', end='')"]
    with Subprocess(command, dict(os.environ), subprocess.DEVNULL) as started:
        assert list(started.lines(30.0)) == ["a", "b"]
