"""Stage: the slots of shared memory that the arrays of shm's collectives pass through, two for each rank, used in turn.

The one idea: two slots make one meeting per piece enough. Whoever writes slot A again has passed the meeting on slot B,
and nobody arrives there who still reads A.

    stage = Stage(segment, ShmPlan(4)); slots = stage.next(); slots[rank][:5] = data; ...meet...; slots[2][:5]

A collective that is given up is taken back (`rewind`): ranks that were at different pieces of it are at one turn again.
"""

from collections.abc import Iterator, Sequence
from typing import final

import numpy as np

from unisono.arena.memory.segment import Segment
from unisono.comm.collective_check import ROW_WORDS, Row
from unisono.comm.shm.memory_plan import ShmPlan

_ROW_BYTES = 8 * ROW_WORDS


@final
class Stage:
    """One rank's hold on the slots of all."""

    def __init__(self, segment: Segment, plan: ShmPlan) -> None:
        kind, ranks = np.dtype(np.uint8), range(plan.size)
        self._all = [
            [segment.array(plan.slot_start(turn, rank), plan.slot_bytes, kind) for rank in ranks] for turn in (0, 1)
        ]
        self._slots = self._all
        self._turn = self._before = 0
        self._slot_bytes = plan.slot_bytes

    def choose(self, ranks: Sequence[int]) -> None:
        """From now on slots are those of `ranks`, in this order."""
        self._slots = [[slots[rank] for rank in ranks] for slots in self._all]

    def begin(self) -> None:
        """A collective begins."""
        self._before = self._turn

    def rewind(self) -> None:
        """It is given up, by all ranks."""
        self._turn = self._before

    def next(self) -> list[np.ndarray]:
        """The slots for the next piece, by rank."""
        self._turn ^= 1
        return self._slots[self._turn]

    def pieces(self, length: int, itemsize: int) -> Iterator[tuple[int, int]]:
        """Ranges of elements that fit a slot."""
        step = self._slot_bytes // itemsize
        for start in range(0, length, step):
            yield start, min(start + step, length)

    @property
    def fixed(self) -> list[np.ndarray]:
        """The same on all ranks, whatever they have done."""
        return self._slots[0]


def rows_in(slots: list[np.ndarray]) -> list[np.ndarray]:
    """The beginnings of slots as rows (see `comm/collective_check.py`)."""
    return [slot[:_ROW_BYTES].view(np.int64) for slot in slots]


def read_rows(slots: list[np.ndarray]) -> list[Row]:
    """What lies there."""
    return [tuple(map(int, row)) for row in rows_in(slots)]
