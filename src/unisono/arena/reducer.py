"""The in-place all-reduce of the arena: nothing is sent, nothing is copied.

The one idea: every rank writes its vector straight into its own slot of shared memory; each rank then combines one
chunk of all slots, and the result, which lies in slot 0, is read by all where it is. The cost is one walk over the
memory, shared among the ranks, and two barriers.

    reducer.mine[:] = gradients; reducer.all_reduce(timeout_s=10); use(reducer.result)

The combination is canonical (`canon.py`): the same bits whatever the number of chunks. The slots are spent by it:
fill all of `mine` again before the next call. Between two calls a rank may read `result` and write `mine` freely,
except rank 0, whose slot *is* the result: what it writes, the others may see. Give ranks a reason to have read the
result first (the next barrier they all pass), or let rank 0 copy.
"""

from collections.abc import Sequence

import numpy as np

from unisono.arena.barrier import Barrier
from unisono.arena.canon import chunk_bounds, combine
from unisono.arena.segment import PAGE, Segment


class ArenaReducer:
    """One rank's hold on `size` slots of `length` elements; all ranks make theirs over the same segment."""

    def __init__(self, segment: Segment, rank: int, size: int, length: int, dtype: np.dtype, *, crowded: bool) -> None:
        slot_bytes = _slot_bytes(length, dtype)
        start = _barrier_bytes(size)
        self._slots = [segment.array(start + peer * slot_bytes, length, dtype) for peer in range(size)]
        self._barrier = Barrier(segment.words(0, Barrier.words_needed(size)), rank, size, crowded=crowded)
        low, high = chunk_bounds(length, size, rank)
        self._chunks: Sequence[np.ndarray] = [slot[low:high] for slot in self._slots]
        self.mine = self._slots[rank]
        self.result = self._slots[0]

    @staticmethod
    def bytes_needed(size: int, length: int, dtype: np.dtype) -> int:
        return _barrier_bytes(size) + size * _slot_bytes(length, dtype)

    def all_reduce(self, ufunc: np.ufunc, timeout_s: float) -> None:
        """result = the canonical combination of all slots. TimeoutError when a rank does not come: see `missing`."""
        chunks = self._chunks
        self._barrier.wait(timeout_s)
        if len(chunks[0]):
            combine(chunks, chunks[0], ufunc)
        self._barrier.wait(timeout_s)

    def missing(self) -> list[int]:
        """The ranks that did not come."""
        return self._barrier.missing()


def _slot_bytes(length: int, dtype: np.dtype) -> int:
    return -(-length * dtype.itemsize // PAGE) * PAGE


def _barrier_bytes(size: int) -> int:
    return -(-8 * Barrier.words_needed(size) // PAGE) * PAGE
