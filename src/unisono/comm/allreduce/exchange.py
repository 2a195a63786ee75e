"""The step that ring and halving are made of: send one range, reduce what arrives into another.

In pieces, so that what arrives is reduced while it is in the cache, and needs no second array of the same length.
"""

import numpy as np

from unisono.comm.base import Array, Communicator

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
        leaving = comm.isend(given[start : start + step], dest) if start < len(given) else None
        piece = target[start : start + step]
        if len(piece):
            room = inbox[: len(piece)]
            comm.recv(room, source)
            ufunc(piece, room, out=piece)
        if leaving is not None:
            leaving.wait()
