"""The in-place all-reduce of the arena: nothing is sent, nothing is copied.

The one idea: every rank writes its vector straight into its own slot of shared memory; each rank then combines one
chunk of all slots, and the result, which lies in slot 0, is read by all where it is. The cost is one walk over the
memory, shared among the ranks, and two barriers.

    reducer.mine[:] = values; reducer.all_reduce(np.add, timeout_s=10); use(reducer.result)

Who uses it: `unisono bench --algorithms arena` (`measure/allreduce_bench_worker.py`) and benchmarks/allreduce.py, which
show how fast memory allows an all-reduce to be. Training does not: ranks add gradients up in the arena of the run
(`strategies/arena/shard_sums.py`), or over a communicator (`comm/allreduce.py`).

The combination is canonical (`reduction_tree.py`): the same bits whatever the number of chunks. It overwrites the
slots: fill all of `mine` again before the next call. Between two calls a rank may read `result` and write `mine`
freely, except rank 0, whose slot *is* the result: what it writes, the others may see. Give ranks a reason to have
read the result first (the next barrier they all pass), or let rank 0 copy.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import final
from zlib import crc32

import numpy as np

from unisono.arena.memory.segment import PAGE, Segment
from unisono.arena.reduction_tree import chunk_bounds, combine
from unisono.arena.sync.barrier import Barrier
from unisono.errors import CommError, CommTimeout, Mismatch


@final
class ArenaReducer:
    """One rank's hold on `size` slots of `length` elements; all ranks make theirs over the same segment."""

    def __init__(
        self,
        segment: Segment,
        rank: int,
        size: int,
        slot: tuple[int, np.dtype],
        *,
        crowded: bool,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """slot: (elements, type) of a rank's vector. meanwhile: see `Barrier`."""
        length, dtype = slot
        slot_bytes, start = _slot_bytes(length, dtype), _barrier_bytes(size)
        words = segment.words(0, Barrier.words_needed(size))
        self._rank = rank
        self._slots = [segment.array(start + peer * slot_bytes, length, dtype) for peer in range(size)]
        self._barrier = Barrier(words, rank, size, crowded=crowded, meanwhile=meanwhile)
        low, high = chunk_bounds(length, size, rank)
        self._chunks: Sequence[np.ndarray] = [part[low:high] for part in self._slots]
        self._broken = ""
        self.mine = self._slots[rank]
        self.result = self._slots[0]

    @staticmethod
    def bytes_needed(size: int, length: int, dtype: np.dtype) -> int:
        return _barrier_bytes(size) + size * _slot_bytes(length, dtype)

    def all_reduce(self, ufunc: np.ufunc, timeout_s: float) -> None:
        """result = the canonical combination of all slots; a `CommTimeout` names the ranks that did not come."""
        if self._broken:
            raise CommError(f"this reducer is broken: {self._broken}", hint="make a new one", rank=self._rank)
        chunks = self._chunks
        self._meet(timeout_s, _stamp(ufunc))
        if len(chunks[0]):
            combine(chunks, chunks[0], ufunc)
        self._meet(timeout_s, 0)

    def _meet(self, timeout_s: float, stamp: int) -> None:
        try:
            same = self._barrier.wait(timeout_s, stamp)
        except TimeoutError:
            missing = self._barrier.missing()
            who = ", ".join(map(str, missing))
            self._broken = f"rank {who} did not arrive"
            raise CommTimeout(
                f"waited {timeout_s:g} s in the arena's all_reduce; rank {who} did not arrive",
                missing=missing,
                hint="see what that rank was doing, or allow a longer wait",
                rank=self._rank,
            ) from None
        if not same:
            self._broken = "ranks gave different operations"
            raise Mismatch(
                "ranks gave different operations to the arena's all_reduce",
                hint="call it with the same operation on every rank",
                rank=self._rank,
            )


@lru_cache
def _stamp(ufunc: np.ufunc) -> int:
    """A number for an operation, the same in every process."""
    return crc32(ufunc.__name__.encode())


def _slot_bytes(length: int, dtype: np.dtype) -> int:
    return -(-length * dtype.itemsize // PAGE) * PAGE


def _barrier_bytes(size: int) -> int:
    return -(-8 * Barrier.words_needed(size) // PAGE) * PAGE
