"""Epochs: the outer loop of the user's own, which a program that is started again enters at the epoch that goes on.

    for epoch in world.epochs(5):
        for batch in world.batches(dataset, batch_size=256): ...
        print(epoch, batch.loss)

The one idea: it is `range(5)`, less the epochs that a snapshot of `unisono.keep` holds to their end, with all that
follows their batches. Nothing of these runs again. The epoch that goes on runs from its start; `world.batches` passes
over its batches that are done, and gives one at least, for a snapshot is of a moment when a batch is about to be given.
"""

from collections.abc import Iterator
from typing import final

from unisono.loop.sharing import Sharing


@final
class Epochs:
    """Numbers from 0 to `count` - 1. Every loop over it begins with the first that is not done."""

    def __init__(self, sharing: Sharing, count: int) -> None:
        self._sharing, self._count = sharing, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        # A new iterator, which nobody else holds: it is closed when the loop is left early.
        return self._sharing.attendant.epochs(self._count)
