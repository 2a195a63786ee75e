"""The step that ring and halving are made of: send one range, reduce what arrives into another.

In pieces, so that what arrives is reduced while it is in the cache, and needs no second array of the same length.
"""

import numpy as np

from unisono.comm.base import COLLECTIVE_TAG, Array, Communicator

PIECE_BYTES = 2**19


def exchange_and_reduce(
    comm: Communicator, outgoing: tuple[Array, int], incoming: tuple[Array, int], ufunc: np.ufunc
) -> None:
    """Sends outgoing = (array, dest); reduces what source sends into incoming = (array, source). No overlap."""
    (given, dest), (target, source) = outgoing, incoming
    step = max(1, PIECE_BYTES // given.itemsize)
    inbox = np.empty(min(step, len(target)), target.dtype)
    # The two may differ in length by one element, and so in their number of pieces.
    for start in range(0, max(len(given), len(target)), step):
        leaving, piece = given[start : start + step], target[start : start + step]
        room = inbox[: len(piece)]
        if len(leaving) and len(piece):
            comm.sendrecv(leaving, dest, room, source, tag=COLLECTIVE_TAG)
        elif len(leaving):
            comm.send(leaving, dest, tag=COLLECTIVE_TAG)
        else:
            comm.recv(room, source, tag=COLLECTIVE_TAG)
        ufunc(piece, room, out=piece)
