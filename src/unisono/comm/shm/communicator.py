"""shm: ranks of one node over shared memory, with no MPI, no torch and no sockets.

Collectives pass through a stage (`memory.py`): a rank copies a piece of its array into its slot, all meet, and everyone
takes what it needs from the others' slots. Pieces are small enough to stay in the cache, so long arrays never travel
through main memory twice.

    python -c "import unisono; print(unisono.run(lambda world: world.size, ranks=2))"

Where ranks may die and others go on (`follow`), a collective goes over those who live. One that needs what a dead rank
has not given raises `RankLost` on all of them, `rank` and `size` are those of the living from then on, and the next one
works. `barrier`, and `broadcast` from one who lives, need nothing of the dead: they just pass. What a collective was to
fill is undefined after `RankLost`.

Where things lie: `memory.py`. Messages: `p2p.py`. Who takes part: `membership.py`. No copy:
`arena/in_place_allreduce.py`.

Limits: what `split` gives is broken when one of its ranks dies.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import final
from weakref import WeakSet

import numpy as np

from unisono.arena.membership.member import MembershipChanged
from unisono.arena.memory.segment import Segment
from unisono.arena.reduction_tree import chunk_bounds, combine
from unisono.arena.sync.barrier import Barrier
from unisono.arena.sync.pipe import CONTROL_WORDS, Reader, Writer
from unisono.comm.base import ANY, DEFAULT_TIMEOUT_S, OPS, Array, Communicator, Envelope, Request
from unisono.comm.checked_base import CheckedCommunicator
from unisono.comm.collective_check import ROW_WORDS, Row, check_rows, kind_of, lost_rank_error, row
from unisono.comm.shm.membership import Membership
from unisono.comm.shm.memory import ShmPlan, Stage, read_rows, rows_in
from unisono.comm.shm.p2p import Mailbox
from unisono.comm.topology.local_peer_watch import PeerWatch
from unisono.comm.topology.shared_machine import share_segment
from unisono.errors import CommError, CommTimeout
from unisono.resources import usable_cores

_SMALL_BYTES = 32 * 1024


@final
class ShmCommunicator(CheckedCommunicator):
    """One rank's side; `segment` was made with `ShmPlan(size).nbytes` and is shared by all ranks."""

    transport = "shm"

    def __init__(self, segment: Segment, rank: int, size: int, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        super().__init__(rank, size, timeout_s, checked=True)
        crowded = size > usable_cores()
        self._segment = segment
        self._plan = ShmPlan(size)
        self._stage = Stage(segment, self._plan)
        self._row = row("barrier")
        self._needed: Sequence[int] | None = None
        """The ranks whose part the collective needs; None: all of them."""
        self._membership: Membership | None = None
        self._watched: PeerWatch | None = None
        self._parts: WeakSet[ShmCommunicator] = WeakSet()
        """What `split` gave."""
        self._version = 0
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
        self._barrier = Barrier(words, rank, size, crowded=crowded, meanwhile=self._meanwhile)

    @classmethod
    def over(cls, comm: Communicator) -> "ShmCommunicator":
        """A shm communicator for the ranks of any `comm` whose ranks are all on this node."""
        segment = share_segment(comm, list(range(comm.size)), ShmPlan(comm.size).nbytes)
        made = cls(segment, comm.rank, comm.size, comm.timeout_s)
        made.watch(PeerWatch(comm))
        return made

    def watch(self, peers: PeerWatch) -> None:
        """A rank that waits for one whose process has ended gets a `RankLost`, instead of waiting until the time-out;
        where no supervisor watches ranks."""
        self._watched = peers

        def look(peer: int) -> None:
            if peer in peers.exited():
                raise lost_rank_error(self.rank, "a message", [peer])

        self._mail.pause = look

    def follow(self, membership: Membership) -> None:
        """From now on the others go on if a rank dies. Called by all ranks at the same point."""
        self._membership, self._version = membership, membership.version
        self._mail.pause = membership.await_peer

    def renumber(self, slots: tuple[int, ...]) -> None:
        """Those in `slots` take part from now on, numbered in this order; all of them call it at the same point."""
        membership = self._membership
        if membership is None or membership.slots == slots:
            return
        membership.slots = slots
        self.rank, self.size = membership.rank, len(slots)
        self._stage.choose(slots)
        self._mail.rename({slot: rank for rank, slot in enumerate(slots)})

    # -- point to point

    def isend(self, array: Array, dest: int, tag: int = 0) -> Request:
        self.check_message(array, dest, "dest", tag)
        return self._mail.isend(array, self._peer(dest), tag)

    def irecv(self, array: Array, source: int, tag: int = 0) -> Request:
        self.check_message(array, source, "source", tag)
        return self._mail.irecv(array, self._peer(source), tag)

    def probe(self, source: int = ANY, tag: int = ANY) -> Envelope | None:
        self.check_source(source)
        found = self._mail.probe(source if source == ANY else self._peer(source), tag)
        if found is not None:
            return replace(found, source=self._mail.names[found.source])
        if self._membership is not None:
            if source == ANY:
                self._membership.pause()
            else:
                self._membership.await_peer(self._peer(source))
        return None

    # -- collectives

    def barrier(self) -> None:
        self._begin("barrier", needed=())
        self._meet()

    def _reduce(self, flat: Array, op: str) -> None:
        if self.size == 1:
            return
        for start, stop in self._stage.pieces(len(flat), flat.itemsize):
            piece = flat[start:stop]
            if piece.nbytes <= _SMALL_BYTES:
                self._reduce_small(piece, OPS[op])
            else:
                self._reduce_piece(piece, OPS[op])

    def _broadcast(self, data: Array, root: int) -> None:
        for start, stop in self._stage.pieces(len(data), 1):
            slot = self._stage.next()[root][: stop - start]
            if self.rank == root:
                slot[:] = data[start:stop]
            self._meet()
            if self.rank != root:
                data[start:stop] = slot

    def _all_gather(self, data: Array, out: Array) -> None:
        self._gather(data, out, 0)

    def _gather(self, data: Array, out: Array | None, root: int) -> None:
        for start, stop in self._stage.pieces(len(data), 1):
            slots = self._stage.next()
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
        made = ShmCommunicator(segment, members.index(self.rank), len(members), self.timeout_s)
        if self._membership is not None:
            made.follow(self._membership.group(members))
        elif self._watched is not None:
            made.watch(PeerWatch(made))
            self._parts.add(made)
        return made

    def progress(self) -> None:
        self._mail.progress()

    def abort_peers(self, error: BaseException) -> None:
        # Our own launcher ends the others, and this rank's error is the one to show, not theirs. Others do not.
        if self._watched is not None and not self.state:
            self._barrier.leave()
        for part in self._parts:
            part.abort_peers(error)
        self.state = self.state or f"broken: {error!r}"

    def close(self) -> None:
        if not self.state:
            self._barrier.leave()
        self.state = "closed"
        if self._watched is not None:
            self._watched.close()
            self._watched = None
        self._segment.close()

    # -- inside

    def _enter(self, kind: str, *values: int) -> None:
        """What is called here is compared at the next meeting, which moving the data needs anyway."""
        self._begin(kind, *values, needed=values[-1:] if kind == "broadcast" else None)
        if not values[0]:  # an empty array: no data, so no other meeting
            self._meet()

    def _show(self, what: str, mine: Row) -> list[Row]:
        self._begin(kind_of(mine), needed=None)
        self._row = mine[:1]  # the values may differ, that is for the caller to judge
        slots = self._stage.next()
        rows_in(slots)[self.rank][:] = mine
        self._meet()
        return read_rows(slots)

    def _begin(self, kind: str, *values: int, needed: Sequence[int] | None) -> None:
        self.check_open()
        self._row, self._needed = row(kind, *values), needed
        self._stage.begin()

    def _meet(self) -> None:
        """All ranks meet; those that were called differently find out together."""
        # Again if somebody is lost who had not come: without that rank, if nothing of it is needed.
        membership = self._membership
        same = self._wait() if membership is None else membership.repeat(self._wait_for_living)
        if not same:
            self._explain()

    def _wait_for_living(self) -> bool:
        assert self._membership is not None
        self._check_living(self._membership)
        return self._wait()

    def _wait(self) -> bool:
        try:
            return self._barrier.wait(self.timeout_s, hash(self._row))
        except TimeoutError:
            raise self._late() from None

    def _check_living(self, membership: Membership) -> None:
        """`RankLost` if a rank whose part is needed is no more; all others raise it in the same collective."""
        if membership.version != self._version:
            self._version = membership.version
            if not membership.fixed:
                self._barrier.resume(membership.living)
        if not (gone := membership.gone(self._needed)):
            return
        error = membership.loss(kind_of(self._row), [membership.slots[rank] for rank in gone])
        if membership.fixed:
            self.state = "broken: one of its ranks is gone"
        else:
            self._stage.rewind()
            self.renumber(membership.living)
        raise error

    def _meanwhile(self) -> None:
        """While this rank waits for the others: moves messages, and stands still when somebody is lost."""
        self._mail.progress()
        if self._watched is not None and self._membership is None:
            gone = self._watched.exited()
            if missing := [rank for rank in self._barrier.missing() if rank in gone]:
                self.state = f"broken: rank {', '.join(map(str, missing))} is gone"
                raise lost_rank_error(self.rank, kind_of(self._row), missing)
        membership = self._membership
        if membership is not None and membership.pause():
            if membership.fixed:
                self._check_living(membership)
            elif not self._barrier.took_place:
                if self.state:
                    raise TimeoutError  # nobody comes again to the barrier of a broken communicator
                raise MembershipChanged

    def _peer(self, rank: int) -> int:
        return rank if self._membership is None else self._membership.peer_of(rank)

    def _late(self) -> CommError:
        """Somebody did not come: because it has left for good, or because time is up."""
        missing, left = (
            [self._mail.names[peer] for peer in they] for they in (self._barrier.missing(), self._barrier.left())
        )
        kind = kind_of(self._row)
        if left := [rank for rank in left if rank in missing]:
            self.state = f"broken: rank {', '.join(map(str, left))} has left"
            return CommTimeout(
                f"rank {', '.join(map(str, left))} has left and will not come to this {kind}",
                missing=left,
                hint="every rank must call the same collectives, as often as the others",
                rank=self.rank,
            )
        return self.give_up(kind, missing)

    def _explain(self) -> None:
        """Called on all ranks together after a meeting in which they were called differently; raises on all.

        What they called has moved their turns differently, so rows pass through a fixed place. Nobody reads data there
        any more: whoever was still reading had not arrived at the meeting, and whoever arrived has come here.
        """
        self.state = "broken: ranks called different things"
        rows_in(self._stage.fixed)[self.rank][:] = self._row + (0,) * (ROW_WORDS - len(self._row))
        try:
            self._barrier.wait(self.timeout_s)
        except TimeoutError:
            raise self._late() from None
        check_rows(kind_of(self._row), read_rows(self._stage.fixed))
        raise CommError("ranks called different things, and nobody can say what", rank=self.rank)

    def _pipe(self, source: int, dest: int) -> tuple[memoryview, memoryview]:
        start = self._plan.pipe_start(source, dest)
        control = self._segment.words(start, CONTROL_WORDS)
        return control, self._segment.bytes(start + 8 * CONTROL_WORDS, self._plan.pipe_bytes)

    def _reduce_small(self, piece: Array, ufunc: np.ufunc) -> None:
        """Everyone combines everything: one meeting instead of two is worth more than the sums saved."""
        parts = [slot[: piece.nbytes].view(piece.dtype) for slot in self._stage.next()]
        parts[self.rank][:] = piece
        self._meet()
        combine(parts, piece, ufunc)

    def _reduce_piece(self, piece: Array, ufunc: np.ufunc) -> None:
        """Each rank combines one chunk, its own share read from where it is, and leaves the result in its slot."""
        parts = [slot[: piece.nbytes].view(piece.dtype) for slot in self._stage.next()]
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
