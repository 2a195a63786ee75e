"""MachineMemory: what the ranks of one process group that are on one machine share, as tensors.

The one idea: every rank of the group has a slot here, those of other machines included, which the first rank of this
machine fills. So a collective is written once: each rank fills its slot, all meet, and everyone reads what it needs.

    memory = MachineMemory(segment, members=(0, 1), rank=0, size=2, pids={1: 4711})
    slots = memory.slots(torch.float32, 1000); slots[0].copy_(x); yield from memory.meet(call)

Two slots a rank, used in turn, make one meeting a piece enough (`comm/shm/memory.py`). While a rank waits, its
generator yields: who runs it decides how to wait (`work.py`).
"""

import os
import select
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias, final

import torch

from unisono.arena.memory.fence import fence
from unisono.arena.memory.segment import Segment
from unisono.arena.sync.barrier import Barrier
from unisono.comm.base import disagreement
from unisono.comm.shm.memory import REASON_BYTES, ShmPlan, Stage
from unisono.torch.calls import Call, Tensor

Steps: TypeAlias = Generator[None, None, None]
"""A collective under way: yields while it waits for others."""

_SPINS = 2000
"""Looks before this rank does anything else, where each rank has a core: a tenth of a millisecond or two, which is how
far ranks of a training step are apart."""
_TEXT_BYTES = 256
_MOST_VIEWS = 256
"""Of slots, which are kept because the same lengths come again and again."""


@final
class MachineMemory:
    """One rank's hold on the memory of its machine. members: the ranks of this machine, in order."""

    def __init__(
        self, segment: Segment, members: Sequence[int], rank: int, size: int, pids: Mapping[int, int], *, crowded: bool
    ) -> None:
        """pids: the processes of the other members, as far as this one can watch them."""
        self.members, self.rank, self.size = tuple(members), rank, size
        self.plan = ShmPlan(size)
        self._segment, self._stage = segment, Stage(segment, self.plan)
        words = segment.words(0, Barrier.words_needed(size))
        self._barrier = Barrier(words, self.members.index(rank), len(self.members), crowded=crowded)
        self._spins = range(0 if crowded else _SPINS)
        self._views: dict[tuple[int, torch.dtype, int], list[Tensor]] = {}
        self._watched: dict[int, int] = {}
        self._poller = select.poll()
        self._ended: set[int] = set()
        for member, pid in pids.items():
            try:
                fd = os.pidfd_open(pid)
            except OSError:  # it has ended
                self._ended.add(member)
            else:
                self._watched[fd] = member
                self._poller.register(fd, select.POLLIN)

    # -- slots

    def slots(self, dtype: torch.dtype, count: int) -> list[Tensor]:
        """The slots for the next piece, by rank, as `count` elements of a type."""
        turn = self._stage.next()
        key = (self._stage.turn, dtype, count)
        if (views := self._views.get(key)) is None:
            if len(self._views) >= _MOST_VIEWS:
                self._views.clear()
            with torch.inference_mode(False):  # they stay, for operations outside it as well
                views = self._views[key] = [torch.from_numpy(slot).view(dtype)[:count] for slot in turn]
        return views

    def pieces(self, count: int, itemsize: int) -> Iterator[tuple[int, int]]:
        """Ranges of elements that fit a slot."""
        return self._stage.pieces(count, itemsize)

    # -- meeting

    def meet(self, call: Call) -> Steps:
        """Returns when all members of this machine have come, with the same call; else a `Mismatch` on all of them."""
        if not self.arrive(call):
            yield from self.rest_of_meeting(call)

    def arrive(self, call: Call) -> bool:
        """This rank has come; whether the others came within moments, with the same call. If not, the rest follows."""
        barrier = self._barrier
        barrier.arrive(call.stamp)
        for _ in self._spins:
            if barrier.complete():
                return barrier.equal(call.stamp)
        return barrier.complete() and barrier.equal(call.stamp)

    def rest_of_meeting(self, call: Call) -> Steps:
        """What `meet` does after `arrive`."""
        barrier = self._barrier
        while not barrier.complete():
            yield
        if not barrier.equal(call.stamp):
            yield from self._explain(call)

    def _explain(self, call: Call) -> Steps:
        """All members come here together, and nobody reads data any more: texts go through a fixed place."""
        texts = [torch.from_numpy(slot)[:_TEXT_BYTES] for slot in self._stage.fixed]
        mine = call.text.encode()[:_TEXT_BYTES].ljust(_TEXT_BYTES, b"\0")
        texts[self.rank].copy_(torch.frombuffer(bytearray(mine), dtype=torch.uint8))
        self._barrier.arrive()
        while not self._barrier.complete():
            yield
        rows = {member: bytes(texts[member].tolist()).rstrip(b"\0").decode() for member in self.members}
        raise disagreement("which collective to call, and with what", [(rows[m],) for m in self.members], self.members)

    def leave(self, reason: str) -> None:
        """This rank will not come any more. The others can read why, for the cause may be known to this rank only."""
        text = reason.encode(errors="replace")[: REASON_BYTES - 1]
        self._segment.bytes(self.plan.reason_start(self.rank), REASON_BYTES)[: len(text)] = text
        if fence is not None:
            fence()
        self._barrier.leave()

    def reason_of(self, member: int) -> str:
        """Why a member has left, of those in `left`."""
        if fence is not None:
            fence()
        text = bytes(self._segment.bytes(self.plan.reason_start(member), REASON_BYTES))
        return text.partition(b"\0")[0].decode(errors="replace")

    # -- who is missing

    def missing(self) -> list[int]:
        """The members that have not come to the meeting which this rank waits in."""
        return [self.members[number] for number in self._barrier.missing()]

    def lost(self) -> list[int]:
        """The members that are missing, and whose process has ended."""
        for fd, _ in self._poller.poll(0):
            self._ended.add(self._watched[fd])
            self._poller.unregister(fd)
        return [member for member in self.missing() if member in self._ended]

    def ended(self) -> set[int]:
        """The members whose process has ended, as far as they were looked for."""
        self.lost()
        return self._ended

    def left(self) -> list[int]:
        """The members that are missing, and have left for good."""
        gone = {self.members[number] for number in self._barrier.left()}
        return [member for member in self.missing() if member in gone]

    def gone(self) -> dict[int, str]:
        """The members that have left for good, and why."""
        return {(member := self.members[number]): self.reason_of(member) for number in self._barrier.left()}

    def pipe(self, source: int, dest: int) -> tuple[memoryview, memoryview]:
        """Control words and ring of the messages from one member to another."""
        from unisono.arena.sync.pipe import CONTROL_WORDS

        start = self.plan.pipe_start(source, dest)
        control = self._segment.words(start, CONTROL_WORDS)
        return control, self._segment.bytes(start + 8 * CONTROL_WORDS, self.plan.pipe_bytes)

    def close(self) -> None:
        """Gives back what is held; may be called twice."""
        for fd in self._watched:
            with suppress(OSError):
                os.close(fd)
        self._watched.clear()
        self._views.clear()
        self._segment.close()
