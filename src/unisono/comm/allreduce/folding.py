"""Worlds that are not a power of two, for the algorithms that need one.

The first 2*r ranks (r = size - largest power of two) pair up: the odd one gives its array to the even one before it and
gets the result at the end. What remains is a power of two, numbered by `virtual`.
"""

from collections.abc import Callable

import numpy as np

from unisono.comm.base import COLLECTIVE_TAG, Array, Communicator


def folded(
    comm: Communicator, array: Array, ufunc: np.ufunc, core: Callable[[int, int, Callable[[int], int]], None]
) -> None:
    """Runs core(virtual rank, power of two, virtual -> real rank) on the ranks that stay."""
    power = 1 << comm.size.bit_length() - 1
    pairs = comm.size - power
    rank = comm.rank
    if rank < 2 * pairs and rank % 2:
        comm.send(array, rank - 1, tag=COLLECTIVE_TAG)
        comm.recv(array, rank - 1, tag=COLLECTIVE_TAG)
        return
    if rank < 2 * pairs:
        inbox = np.empty_like(array)
        comm.recv(inbox, rank + 1, tag=COLLECTIVE_TAG)
        ufunc(array, inbox, out=array)
    virtual = rank // 2 if rank < 2 * pairs else rank - pairs
    core(virtual, power, lambda other: other * 2 if other < pairs else other + pairs)
    if rank < 2 * pairs:
        comm.send(array, rank + 1, tag=COLLECTIVE_TAG)
