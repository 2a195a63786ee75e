"""What the process that started ranks hears of a model they share."""

import os

import numpy as np

from unisono.arena.layout import Sections
from unisono.launch.sharers import NEWS, Sharers


def test_news_of_a_rank_that_has_died_since_share_nothing():
    """The memory is reached through the rank that tells of it; another one tells of it, too."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    sharers = Sharers(2)
    sections = Sections({"words": (4, np.dtype(np.int64))})
    assert sharers.hear({NEWS: {"pid": pid, "fd": 5, "sections": sections.pack()}})
    assert not sharers.any
    sharers.check_left([0], [1])
    assert not sharers.hear({"other": 1})
