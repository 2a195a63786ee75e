"""Naive all-reduce: everyone sends everything to everyone. (n-1)*s bytes per rank, n*(n-1)*s in all."""

import numpy as np

from unisono.arena.canon import combine
from unisono.comm.base import COLLECTIVE_TAG, Array, Communicator


def naive(comm: Communicator, array: Array, ufunc: np.ufunc) -> None:
    """Round k: send to the rank k further on, receive from the one k before."""
    if comm.size == 1:
        return
    parts: list[Array] = [array] * comm.size
    for distance in range(1, comm.size):
        source = (comm.rank - distance) % comm.size
        parts[source] = np.empty_like(array)
        comm.sendrecv(array, (comm.rank + distance) % comm.size, parts[source], source, tag=COLLECTIVE_TAG)
    # In one order on all ranks, not in the order of arrival: all must round alike.
    result = np.empty_like(array)
    combine(parts, result, ufunc)
    array[:] = result
