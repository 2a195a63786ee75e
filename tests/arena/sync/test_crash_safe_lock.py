"""Pens: one holder at a time, across processes; a dead one's can be put back."""

import os
from contextlib import closing

import unisono
from unisono.arena.memory.segment import Segment
from unisono.arena.sync.crash_safe_lock import CrashSafeLocks


def test_one_holder_at_a_time():
    with closing(CrashSafeLocks(2)) as crash_safe_locks:
        assert crash_safe_locks.try_acquire(0)
        assert not crash_safe_locks.try_acquire(0)
        assert crash_safe_locks.try_acquire(1)
        crash_safe_locks.release(0)
        assert crash_safe_locks.try_acquire(0)


def test_a_lost_pen_is_put_back_once():
    with closing(CrashSafeLocks(2)) as crash_safe_locks:
        assert crash_safe_locks.try_acquire(0)
        crash_safe_locks.reset()
        assert crash_safe_locks.try_acquire(0)
        assert not crash_safe_locks.try_acquire(0)
        assert crash_safe_locks.try_acquire(1)
        assert not crash_safe_locks.try_acquire(1)


def test_processes_exclude_each_other():
    """Three count to 300 each, reading and writing one word: without the pen counts would be lost."""
    with closing(Segment.create(4096)) as segment, closing(CrashSafeLocks(1)) as crash_safe_locks:
        words = segment.words(0, 8)

        def work(world: unisono.World) -> None:
            done = 0
            while done < 300:
                if crash_safe_locks.try_acquire(0):
                    before = words[0]
                    os.sched_yield()
                    words[0] = before + 1
                    done += 1
                    crash_safe_locks.release(0)

        unisono.run(work, 3)
        assert words[0] == 900
