import os

import numpy as np
import pytest

import unisono
from unisono.comm.allreduce import ALGORITHMS, FORMULAS, all_reduce
from unisono.comm.wrappers import Counted, Faulty


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6])
def test_the_bytes_counted_are_those_of_the_formulas(ranks):
    length = 240  # divisible by every size: the formulas are exact

    def work(world):
        found = {}
        for name in ALGORITHMS:
            counted = Counted(world.comm)
            all_reduce(counted, np.ones(length), "sum", name)
            found[name] = counted.sent_bytes
        return found

    counts = unisono.run(work, ranks)
    for name in ALGORITHMS:
        mean = sum(count[name] for count in counts) / ranks
        assert mean == pytest.approx(FORMULAS[name][1](ranks, 8 * length)), name


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_rank_that_dies_in_the_middle_of_a_ring_ends_the_world(victim):
    def work(world):
        comm = Faulty(world.comm, at=2, fault=lambda: os.kill(os.getpid(), 9)) if world.rank == victim else world.comm
        all_reduce(comm, np.ones(1000), "sum", "ring")

    with pytest.raises(unisono.RankFailed, match=f"rank {victim}: was killed by SIGKILL"):
        unisono.run(work, 3, timeout_s=60)
