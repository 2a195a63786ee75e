"""Bells: who sleeps is woken by who has something for it; who does not sleep is left alone; a missed ring is a nap.
What they and locks are made of is given back."""

import os
import select
from contextlib import closing

import pytest

import unisono
from unisono.arena.memory.segment import Segment
from unisono.arena.sync.crash_safe_lock import CrashSafeLocks
from unisono.arena.sync.wakeup import Wakeup


def rung(wakeup: Wakeup, slot: int) -> bool:
    return bool(select.select([wakeup._wakeup[slot][0]], [], [], 0)[0])


def test_only_who_sleeps_is_rung():
    words = [0, 0]
    with closing(Wakeup(2)) as wakeup:
        wakeup.wake(words, 1, 1)
        assert not rung(wakeup, 1)
        words[1] = 1
        wakeup.wake(words, 1, 1)
        assert rung(wakeup, 1)
        assert not rung(wakeup, 0)


def test_a_wait_ends_at_once_if_there_is_something_to_do():
    words = [0]
    with closing(Wakeup(1)) as wakeup:
        wakeup.wait(words, 0, 0, lambda: True)
        looked = []
        wakeup.wait(words, 0, 0, lambda: bool(looked) or looked.append(words[0]) is not None)
    assert looked == [1]  # it says that it sleeps before it looks for the last time
    assert words == [0]


def test_a_ring_that_was_missed_is_a_nap():
    words, looks = [0], []
    with closing(Wakeup(1)) as wakeup:
        while len(looks) < 3:  # nobody rings
            wakeup.wait(words, 0, 0, lambda: looks.append(1) is not None)
    assert words == [0]


def test_ringing_more_often_than_it_can_hold_does_not_block():
    words = [1]
    with closing(Wakeup(1)) as wakeup:
        os.write(wakeup._wakeup[0][1], b"!" * 65536)
        wakeup.wake(words, 0, 0)
        assert rung(wakeup, 0)


@pytest.mark.parametrize(
    ("made", "pipes"), [(Wakeup, lambda made: made._wakeup), (CrashSafeLocks, lambda made: made._pipes)]
)
def test_closing_gives_the_descriptors_back(made, pipes):
    several = made(3)
    ends = [descriptor for pipe in pipes(several) for descriptor in pipe]
    several.close()
    for descriptor in ends:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_two_processes_take_turns():
    """Each waits until the other has counted one further, a thousand times."""
    with closing(Segment.create(4096)) as segment, closing(Wakeup(2)) as wakeup:
        words = segment.words(0, 512)
        counter, asleep = 0, (16, 32)

        def work(world: unisono.World) -> int:
            me, other = world.rank, 1 - world.rank
            while words[counter] < 1000:
                if words[counter] % 2 == me:
                    words[counter] += 1
                    wakeup.wake(words, asleep[other], other)
                else:
                    wakeup.wait(words, asleep[me], me, lambda: words[counter] % 2 == me or words[counter] >= 1000)
            wakeup.wake(words, asleep[other], other)
            return words[counter]

        assert unisono.run(work, 2) == [1000, 1000]
