"""Recursive doubling: log2(n) steps, s bytes in each. The fewest steps, so the best for short arrays."""

from collections.abc import Callable

import numpy as np

from unisono.comm.allreduce.folding import folded
from unisono.comm.base import COLLECTIVE_TAG, Array, Communicator


def doubling(comm: Communicator, array: Array, ufunc: np.ufunc) -> None:
    """Step k exchanges everything with the rank whose number differs in bit k."""

    def core(virtual: int, power: int, real: Callable[[int], int]) -> None:
        inbox = np.empty_like(array)
        distance = 1
        while distance < power:
            peer = real(virtual ^ distance)
            comm.sendrecv(array, peer, inbox, peer, tag=COLLECTIVE_TAG)
            # The lower rank's first: for signed zeros and NaNs the order of two operands matters.
            ufunc(*((inbox, array) if virtual & distance else (array, inbox)), out=array)
            distance *= 2

    folded(comm, array, ufunc, core)
