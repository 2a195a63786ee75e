"""Which ends are counted, and for how long."""

import signal

from unisono.supervise.failure_policy import CrashCounts
from unisono.supervise.processes import ChildExit

EXITED, CRASHED, KILLED = 3 << 8, int(signal.SIGSEGV), int(signal.SIGKILL)
"""As waitpid gives them."""


def ended(crashes: CrashCounts, position: int, **statuses: int) -> int:
    """rank0=EXITED, rank2=KILLED ...: all of them lost in one round."""
    lost = {int(name.removeprefix("rank")): status for name, status in statuses.items()}
    for rank, status in lost.items():
        crashes.hear(ChildExit(rank, status, answered=False, result=None, failure=None))
    crashes.note(position, lost)
    return crashes.count


def test_only_ends_that_nobody_else_caused_are_counted():
    crashes = CrashCounts(most=3)
    assert ended(crashes, 7, rank0=EXITED, rank1=KILLED) == 1
    assert ended(crashes, 7, rank1=KILLED) == 1
    assert not crashes.hopeless
    assert ended(crashes, 7, rank1=CRASHED, rank2=EXITED) == 3
    assert crashes.hopeless


def test_a_round_that_was_done_after_all_is_forgotten():
    crashes = CrashCounts(most=2)
    assert ended(crashes, 7, rank0=EXITED) == 1
    assert ended(crashes, 8, rank0=EXITED) == 1
    assert not crashes.hopeless


def test_those_who_had_not_joined_are_not_counted():
    crashes = CrashCounts(most=2)
    crashes.hear(ChildExit(1, EXITED, answered=False, result=None, failure=None))
    assert ended(crashes, 7, rank0=CRASHED) == 1
    assert ended(crashes, 7, rank2=KILLED) == 1


def test_without_a_limit_nothing_is_counted():
    crashes = CrashCounts(most=0)
    assert ended(crashes, 7, rank0=EXITED, rank1=EXITED) == 0
    assert not crashes.hopeless
