"""shm: ranks of one node over shared memory, with no MPI, no torch and no sockets.

Collectives pass through a stage: every rank has two slots there, used in turn. A rank copies a piece of its array into
its slot, all meet, and everyone takes what it needs from the others' slots. Two slots make one meeting per piece
enough: whoever writes slot A again has passed the meeting on slot B, and nobody arrives there who still reads A. Pieces
are small enough to stay in the cache, so long arrays never travel through main memory twice.

    python -c "import unisono; print(unisono.run(lambda world: world.size, ranks=2))"

Where the slots lie: `shm_plan.py`. Messages: `mail.py`. Without any copy: `arena/reducer.py`.
"""

from collections.abc import Iterator
from typing import final

import numpy as np

from unisono.arena.barrier import Barrier
from unisono.arena.canon import chunk_bounds, combine
from unisono.arena.pipe import CONTROL_WORDS, Reader, Writer
from unisono.arena.segment import Segment
from unisono.comm.arrival import ROW_WORDS, Row, check_rows, kind_of, row
from unisono.comm.base import ANY, DEFAULT_TIMEOUT_S, OPS, Array, Communicator, Envelope, Request
from unisono.comm.checked import CheckedCommunicator
from unisono.comm.mail import Mailbox
from unisono.comm.node import share_segment
from unisono.comm.shm_plan import ShmPlan
from unisono.errors import CommError, CommTimeout
from unisono.resources import usable_cores

_SMALL_BYTES = 32 * 1024
_ROW_BYTES = 8 * ROW_WORDS


@final
class ShmCommunicator(CheckedCommunicator):
    """One rank's side; `segment` was made with `ShmPlan(size).nbytes` and is shared by all ranks."""

    transport = "shm"

    def __init__(self, segment: Segment, rank: int, size: int, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        super().__init__(rank, size, timeout_s, checked=True)
        crowded = size > usable_cores()
        self._segment = segment
        self._plan = plan = ShmPlan(size)
        self._slots = [
            [segment.array(plan.slot_start(turn, peer), plan.slot_bytes, np.dtype(np.uint8)) for peer in range(size)]
            for turn in (0, 1)
        ]
        self._turn = 0
        self._row = row("barrier")
        peers = [peer for peer in range(size) if peer != rank]
        self._mail = Mailbox(
            rank,
            {peer: Writer(*self._pipe(rank, peer)) for peer in peers},
            {peer: Reader(*self._pipe(peer, rank)) for peer in peers},
            self.give_up,
            timeout_s,
            crowded=crowded,
        )
        words = segment.words(0, Barrier.words_needed(size))
        self._barrier = Barrier(words, rank, size, crowded=crowded, meanwhile=self._mail.progress)

    @classmethod
    def over(cls, comm: Communicator) -> "ShmCommunicator":
        """A shm communicator for the ranks of any `comm` whose ranks are all on this node."""
        segment = share_segment(comm, list(range(comm.size)), ShmPlan(comm.size).nbytes)
        return cls(segment, comm.rank, comm.size, comm.timeout_s)

    # -- point to point

    def isend(self, array: Array, dest: int, tag: int = 0) -> Request:
        self.check_message(array, dest, "dest", tag)
        return self._mail.isend(array, dest, tag)

    def irecv(self, array: Array, source: int, tag: int = 0) -> Request:
        self.check_message(array, source, "source", tag)
        return self._mail.irecv(array, source, tag)

    def probe(self, source: int = ANY, tag: int = ANY) -> Envelope | None:
        self.check_source(source)
        return self._mail.probe(source, tag)

    # -- collectives

    def barrier(self) -> None:
        self.check_open()
        self._row = row("barrier")
        self._meet()

    def _reduce(self, flat: Array, op: str) -> None:
        if self.size == 1:
            return
        for start, stop in self._pieces(len(flat), flat.itemsize):
            piece = flat[start:stop]
            if piece.nbytes <= _SMALL_BYTES:
                self._reduce_small(piece, OPS[op])
            else:
                self._reduce_piece(piece, OPS[op])

    def _broadcast(self, data: Array, root: int) -> None:
        for start, stop in self._pieces(len(data), 1):
            slot = self._next_slots()[root][: stop - start]
            if self.rank == root:
                slot[:] = data[start:stop]
            self._meet()
            if self.rank != root:
                data[start:stop] = slot

    def _all_gather(self, data: Array, out: Array) -> None:
        self._gather(data, out, 0)

    def _gather(self, data: Array, out: Array | None, root: int) -> None:
        for start, stop in self._pieces(len(data), 1):
            slots = self._next_slots()
            slots[self.rank][: stop - start] = data[start:stop]
            self._meet()
            if out is not None:
                for peer, slot in enumerate(slots):
                    out[peer, start:stop] = slot[: stop - start]

    # -- groups

    def split(self, colour: int) -> Communicator:
        colours = self.gather_colours(colour)
        members = [rank for rank in range(self.size) if colours[rank] == colours[self.rank]]
        segment = share_segment(self, members, ShmPlan(len(members)).nbytes)
        return ShmCommunicator(segment, members.index(self.rank), len(members), self.timeout_s)

    def progress(self) -> None:
        self._mail.progress()

    def desert(self, error: BaseException) -> None:
        # Not `leave`: our launcher ends the others, and this rank's error is the one to show, not theirs.
        self.state = self.state or f"broken: {error!r}"

    def close(self) -> None:
        if not self.state:
            self._barrier.leave()
        self.state = "closed"
        self._segment.close()

    # -- inside

    def _enter(self, kind: str, *values: int) -> None:
        """What is called here is compared at the next meeting, which moving the data needs anyway."""
        self.check_open()
        self._row = row(kind, *values)
        if not values[0]:  # an empty array: no data, so no other meeting
            self._meet()

    def _show(self, what: str, mine: Row) -> list[Row]:
        self._row = mine[:1]  # the values may differ, that is for the caller to judge
        slots = self._next_slots()
        _rows(slots)[self.rank][:] = mine
        self._meet()
        return [tuple(map(int, row)) for row in _rows(slots)]

    def _meet(self) -> None:
        """All ranks meet; those that were called differently find out together."""
        try:
            same = self._barrier.wait(self.timeout_s, hash(self._row))
        except TimeoutError:
            raise self._late() from None
        if not same:
            self._explain()

    def _late(self) -> CommError:
        """Somebody did not come: because it has left for good, or because time is up."""
        missing, kind = self._barrier.missing(), kind_of(self._row)
        if left := [rank for rank in self._barrier.left() if rank in missing]:
            self.state = f"broken: rank {', '.join(map(str, left))} has left"
            return CommTimeout(
                f"rank {self.rank}: rank {', '.join(map(str, left))} has left and will not come to this {kind}",
                missing=left,
                hint="every rank must call the same collectives, as often as the others",
            )
        return self.give_up(kind, missing)

    def _explain(self) -> None:
        """Called on all ranks together after a meeting in which they were called differently; raises on all.

        What they called has moved their turns differently, so rows pass through a fixed place. Nobody reads data there
        any more: whoever was still reading had not arrived at the meeting, and whoever arrived has come here.
        """
        self.state = "broken: ranks called different things"
        _rows(self._slots[0])[self.rank][:] = self._row + (0,) * (ROW_WORDS - len(self._row))
        try:
            self._barrier.wait(self.timeout_s)
        except TimeoutError:
            raise self._late() from None
        check_rows(kind_of(self._row), [tuple(map(int, row)) for row in _rows(self._slots[0])])
        raise CommError(f"rank {self.rank}: ranks called different things, and nobody can say what")

    def _pipe(self, source: int, dest: int) -> tuple[memoryview, memoryview]:
        start = self._plan.pipe_start(source, dest)
        control = self._segment.words(start, CONTROL_WORDS)
        return control, self._segment.bytes(start + 8 * CONTROL_WORDS, self._plan.pipe_bytes)

    def _pieces(self, length: int, itemsize: int) -> Iterator[tuple[int, int]]:
        """Ranges of elements that fit a slot."""
        step = self._plan.slot_bytes // itemsize
        for start in range(0, length, step):
            yield start, min(start + step, length)

    def _next_slots(self) -> list[Array]:
        self._turn ^= 1
        return self._slots[self._turn]

    def _reduce_small(self, piece: Array, ufunc: np.ufunc) -> None:
        """Everyone combines everything: one meeting instead of two is worth more than the sums saved."""
        parts = [slot[: piece.nbytes].view(piece.dtype) for slot in self._next_slots()]
        parts[self.rank][:] = piece
        self._meet()
        combine(parts, piece, ufunc)

    def _reduce_piece(self, piece: Array, ufunc: np.ufunc) -> None:
        """Each rank combines one chunk, its own share read from where it is, and leaves the result in its slot."""
        parts = [slot[: piece.nbytes].view(piece.dtype) for slot in self._next_slots()]
        low, high = chunk_bounds(len(piece), self.size, self.rank)
        mine = parts[self.rank]
        mine[:low] = piece[:low]
        mine[high:] = piece[high:]
        self._meet()
        chunks = [part[low:high] for part in parts]
        result, chunks[self.rank] = chunks[self.rank], piece[low:high]
        combine(chunks, result, ufunc)
        piece[low:high] = result
        self._meet()
        for peer in range(self.size):
            if peer != self.rank:
                low, high = chunk_bounds(len(piece), self.size, peer)
                piece[low:high] = parts[peer][low:high]


def _rows(slots: list[Array]) -> list[Array]:
    """The beginnings of slots as rows (see `arrival.py`)."""
    return [slot[:_ROW_BYTES].view(np.int64) for slot in slots]
