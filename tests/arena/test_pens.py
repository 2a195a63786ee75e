"""Pens: one holder at a time, across processes; a dead one's can be put back."""

import os
from contextlib import closing

import pytest

import unisono
from unisono.arena.pens import Pens
from unisono.arena.segment import Segment


def test_one_holder_at_a_time():
    with closing(Pens(2)) as pens:
        assert pens.take(0)
        assert not pens.take(0)
        assert pens.take(1)
        pens.give_back(0)
        assert pens.take(0)


def test_a_lost_pen_is_put_back_once():
    with closing(Pens(2)) as pens:
        assert pens.take(0)
        pens.restore()
        assert pens.take(0)
        assert not pens.take(0)
        assert pens.take(1)
        assert not pens.take(1)


def test_closing_gives_the_descriptors_back():
    pens = Pens(1)
    ((source, _),) = pens._pipes
    pens.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(source)


def test_processes_exclude_each_other():
    """Three count to 300 each, reading and writing one word: without the pen counts would be lost."""
    with closing(Segment.create(4096)) as segment, closing(Pens(1)) as pens:
        words = segment.words(0, 8)

        def work(world: unisono.World) -> None:
            done = 0
            while done < 300:
                if pens.take(0):
                    before = words[0]
                    os.sched_yield()
                    words[0] = before + 1
                    done += 1
                    pens.give_back(0)

        unisono.run(work, 3)
        assert words[0] == 900
