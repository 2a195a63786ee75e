"""Halving-doubling (Rabenseifner): reduce-scatter by recursive halving, all-gather by recursive doubling.

2*s*(n-1)/n bytes like the ring, in 2*log2(n) steps instead of 2*(n-1).
"""

from collections.abc import Callable

import numpy as np

from unisono.comm.allreduce.exchange import exchange_and_reduce
from unisono.comm.allreduce.folding import folded
from unisono.comm.base import COLLECTIVE_TAG, Array, Communicator


def halving(comm: Communicator, array: Array, ufunc: np.ufunc) -> None:
    """Each step halves the range this rank is answerable for; the way back doubles it again."""

    def core(virtual: int, power: int, real: Callable[[int], int]) -> None:
        low, high = 0, len(array)
        ways: list[tuple[int, Array, Array]] = []  # (peer, what I keep, what it keeps) of each step
        distance = power // 2
        while distance:
            middle = low + (high - low) // 2
            first, second = array[low:middle], array[middle:high]
            upper = bool(virtual & distance)
            keep, give = (second, first) if upper else (first, second)
            low, high = (middle, high) if upper else (low, middle)
            peer = real(virtual ^ distance)
            exchange_and_reduce(comm, (give, peer), (keep, peer), ufunc)
            ways.append((peer, keep, give))
            distance //= 2
        for peer, keep, give in reversed(ways):
            comm.sendrecv(keep, peer, give, peer, tag=COLLECTIVE_TAG)

    folded(comm, array, ufunc, core)
