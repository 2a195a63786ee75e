"""The shared memory of a shm communicator: ShmPlan, where things lie in it; Stage, the slots that collectives use.

    segment = Segment.create(ShmPlan(4).nbytes)
    stage = Stage(segment, ShmPlan(4)); slots = stage.next(); slots[rank][:5] = data; ...barrier...; slots[2][:5]

`ShmPlan` follows from the number of ranks alone, so the process that creates the memory and the ranks that use it need
not exchange it. Slots and pipes get smaller as ranks get more, down to sizes that still pay.

A `Stage` has two slots for each rank, used in turn, so that one barrier per piece is enough: a rank that writes slot A
again has passed the barrier of slot B, and a rank that still reads A has not arrived there. A collective that is given
up is taken back (`rewind`): ranks that were at different pieces of it use the same slots again.

Limits: a pipe for each pair: 24 MiB for 4 ranks, 100 MiB for 128, more than 1 GiB for 512.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from unisono.arena.memory.segment import PAGE, Segment
from unisono.arena.sync.barrier import Barrier
from unisono.arena.sync.pipe import CONTROL_WORDS
from unisono.comm.collective_check import ROW_WORDS, Row

REASON_BYTES = 512
"""Of a text that says why a rank has left."""


@final
@dataclass(frozen=True)
class ShmPlan:
    """Where things lie in the segment of `size` ranks: barrier, stage (two slots a rank), pipes (one per pair), and a
    line of text for each rank that leaves."""

    size: int

    @property
    def slot_bytes(self) -> int:
        return _power_of_two(16 * 2**20 // self.size, 64 * 1024, 2**20)

    @property
    def pipe_bytes(self) -> int:
        return _power_of_two(32 * 2**20 // max(1, self.size * (self.size - 1)), 4 * 1024, 2**20)

    @property
    def stage_start(self) -> int:
        return -(-8 * Barrier.words_needed(self.size) // PAGE) * PAGE

    def slot_start(self, turn: int, rank: int) -> int:
        return self.stage_start + (turn * self.size + rank) * self.slot_bytes

    def pipe_start(self, source: int, dest: int) -> int:
        first = self.slot_start(2, 0)
        return first + (source * self.size + dest) * (8 * CONTROL_WORDS + self.pipe_bytes)

    def reason_start(self, rank: int) -> int:
        return self.pipe_start(self.size, 0) + rank * REASON_BYTES

    @property
    def nbytes(self) -> int:
        return self.reason_start(self.size)


def _power_of_two(wish: int, least: int, most: int) -> int:
    """The largest power of two up to `wish`, between `least` and `most`."""
    return max(least, min(most, 1 << max(0, wish.bit_length() - 1)))


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
        self.turn = self._before = 0
        """Which of the two slots of each rank is in use."""
        self._slot_bytes = plan.slot_bytes

    def choose(self, ranks: Sequence[int]) -> None:
        """From now on slots are those of `ranks`, in this order."""
        self._slots = [[slots[rank] for rank in ranks] for slots in self._all]

    def begin(self) -> None:
        """A collective begins."""
        self._before = self.turn

    def rewind(self) -> None:
        """It is given up, by all ranks."""
        self.turn = self._before

    def next(self) -> list[np.ndarray]:
        """The slots for the next piece, by rank."""
        self.turn ^= 1
        return self._slots[self.turn]

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
