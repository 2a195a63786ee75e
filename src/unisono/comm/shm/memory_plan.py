"""ShmPlan: where things lie in the shared memory of a shm communicator, and how large they are.

The one idea: it follows from the number of ranks alone, so that whoever makes the memory and whoever works in it need
not tell each other. Slots and pipes get smaller as ranks get more, down to sizes that still pay.

    Segment.create(ShmPlan(4).nbytes)

Limits: a pipe for each pair: 24 MiB for 4 ranks, 100 MiB for 128, more than 1 GiB for 512.
"""

from dataclasses import dataclass
from typing import final

from unisono.arena.memory.segment import PAGE
from unisono.arena.sync.barrier import Barrier
from unisono.arena.sync.pipe import CONTROL_WORDS


@final
@dataclass(frozen=True)
class ShmPlan:
    """Where things lie in the segment of `size` ranks: barrier, stage (two slots a rank), pipes (one per pair)."""

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

    @property
    def nbytes(self) -> int:
        return self.pipe_start(self.size, 0)


def _power_of_two(wish: int, least: int, most: int) -> int:
    """The largest power of two up to `wish`, between `least` and `most`."""
    return max(least, min(most, 1 << max(0, wish.bit_length() - 1)))
