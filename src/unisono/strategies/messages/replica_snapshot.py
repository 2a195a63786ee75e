"""ReplicaSnapshot: what snapshots of a replica are made of, in the memory of its own process.

The one idea: replicas are equal, so the first rank's is the run's. A request is a word that only this process sees; it
becomes a decision of all when the ranks have told each other in a collective that they call anyway.

    own = ReplicaSnapshot(lasting); own.asked = True; own.close_round(position, due=False, halt=True)
"""

from collections.abc import Callable
from typing import final

import numpy as np

from unisono.arena.membership.protocol import words_needed
from unisono.arena.membership.supervisor_requests import Requests
from unisono.strategies.arena.state import PersistentArrays
from unisono.strategies.messages.base import MessageStrategy


@final
class ReplicaSnapshot:
    """Of one rank; see `SnapshotSource`. The spare copy is made at a round's end, where it was decided."""

    def __init__(self, lasting: PersistentArrays) -> None:
        self.requests = Requests([0] * words_needed(1))
        self.lasting = lasting
        self.spare: PersistentArrays | None = None
        self.asked = False
        """Whether this rank was asked to halt: the others do not know yet."""
        self._on_snapshot_copy: Callable[[int], None] | None = None

    def lasting_at(self, position: int) -> PersistentArrays:
        return self.lasting

    def keep(self, on_snapshot_copy: Callable[[int], None]) -> None:
        """This rank's copy is the one that is saved."""
        self._on_snapshot_copy = on_snapshot_copy

    def close_round(self, position: int, *, due: bool, halt: bool = False) -> None:
        """Round `position` is done. due: a snapshot of it is wanted; halt: some rank was asked to halt, as all know."""
        if halt:
            self.requests.ask_to_halt()
        self.requests.decide(position, due=due)
        if self._on_snapshot_copy is not None and self.requests.snapshot_after(position):
            self._copy()
            self._on_snapshot_copy(position)

    def _copy(self) -> None:
        lasting = self.lasting
        if self.spare is None:
            *vectors, buffers, steps, scores, missed = (array.copy() for array in lasting.arrays)
            self.spare = PersistentArrays(vectors, buffers, steps, scores, missed)
            return
        for place, value in zip(self.spare.arrays, lasting.arrays, strict=True):
            np.copyto(place, value)


class SnapshotMessageStrategy(MessageStrategy):
    """Ranks apart whose run can be saved and asked to halt: `_own` is made by whoever makes the strategy."""

    _own: ReplicaSnapshot

    @property
    def snapshot_source(self) -> ReplicaSnapshot:
        return self._own

    def set_on_snapshot_copy(self, on_snapshot_copy: Callable[[int], None]) -> None:
        if self.first:
            self._own.keep(on_snapshot_copy)

    def ask_to_halt(self) -> None:
        self._own.asked = True

    def halts_after(self, position: int) -> bool:
        return self._own.requests.halts_after(position)
