import time

from unisono.arena.sync.waiting import wait_until


def test_gives_up_in_time_and_sleeps_meanwhile():
    busy, start = time.process_time(), time.monotonic()
    assert not wait_until(lambda: False, timeout_s=0.3)
    assert time.monotonic() - start >= 0.3
    # Asleep most of the time: far less work than waiting. (A bound on CPU time, not on speed.)
    assert time.process_time() - busy < 0.2


def test_looks_once_more_at_the_end():
    answers = iter([False, True])
    assert wait_until(lambda: next(answers), timeout_s=0)
