"""Ring all-reduce: 2*s*(n-1)/n bytes per rank, however many ranks; 2*(n-1) steps, so long arrays are where it pays.

The array is cut into n chunks, as equal as possible (for arrays shorter than the world some are empty). In n-1 steps of
reduce-scatter each rank passes the partial result of one chunk to its right; in n-1 steps of all-gather the finished
chunks go round.
"""

from itertools import pairwise

import numpy as np

from unisono.comm.allreduce.exchange import exchange_and_reduce
from unisono.comm.base import COLLECTIVE_TAG, Array, Communicator


def chunks_of(array: Array, count: int) -> list[Array]:
    """`count` consecutive views whose lengths differ by at most one."""
    borders = [len(array) * index // count for index in range(count + 1)]
    return [array[low:high] for low, high in pairwise(borders)]


def ring(comm: Communicator, array: Array, ufunc: np.ufunc) -> None:
    rank, size = comm.rank, comm.size
    left, right = (rank - 1) % size, (rank + 1) % size
    chunks = chunks_of(array, size)
    for step in range(size - 1):
        outgoing, incoming = chunks[(rank - step) % size], chunks[(rank - step - 1) % size]
        exchange_and_reduce(comm, (outgoing, right), (incoming, left), ufunc)
    for step in range(size - 1):
        comm.sendrecv(chunks[(rank + 1 - step) % size], right, chunks[(rank - step) % size], left, tag=COLLECTIVE_TAG)
