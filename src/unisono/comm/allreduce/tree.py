"""Tree all-reduce: reduce to rank 0 along a binomial tree, then broadcast down the same tree.

2*log2(n) steps. Ranks deep in the tree send s bytes, rank 0 up to s*log2(n): good for short arrays, and for
networks in which rank 0 is no bottleneck.
"""

import numpy as np

from unisono.comm.base import COLLECTIVE_TAG, Array, Communicator


def tree(comm: Communicator, array: Array, ufunc: np.ufunc) -> None:
    rank, size = comm.rank, comm.size
    inbox = np.empty_like(array)
    distance = 1
    while distance < size and not rank & distance:  # collect from the children, nearest first
        if rank + distance < size:
            comm.recv(inbox, rank + distance, tag=COLLECTIVE_TAG)
            ufunc(array, inbox, out=array)
        distance *= 2
    if rank:  # `distance` is now the lowest set bit: the parent is that much lower
        comm.send(array, rank - distance, tag=COLLECTIVE_TAG)
        comm.recv(array, rank - distance, tag=COLLECTIVE_TAG)
    distance //= 2
    while distance:  # pass the result to the children, farthest first
        if rank + distance < size:
            comm.send(array, rank + distance, tag=COLLECTIVE_TAG)
        distance //= 2
