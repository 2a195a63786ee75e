"""MachineLinks: the first ranks of several machines exchange tensors over gloo.

The one idea: only these ranks use the network in a collective, and what they send lies in the shared memory of their
machine, where it is sent from and received into without a copy.

    links = MachineLinks(machines=[(0, 1), (2, 3)], rank=0, group=gloo)
    links.exchange([[mine], [others]], stamp)          # on the first rank of each machine

Limits: every first rank sends its part to all others. With many machines an all-reduce sends more than a ring would.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from struct import Struct
from typing import Any, NamedTuple, final

import torch

from unisono.comm.shm.memory import REASON_BYTES
from unisono.errors import CommError, Mismatch, first_line
from unisono.torch.calls import Tensor
from unisono.torch.machine_memory import Steps

_HEAD, _DATA = 1, 2
"""Tags."""
_LEFT = 0
"""Instead of a stamp, from a machine that will not come any more."""
_LEAVE_S = 0.5
"""How long a machine that leaves tries to say why; how long it is waited for when another one is known to be lost."""


class _Head(NamedTuple):
    """What comes before the data: which collective, how many bytes; or why there will be none."""

    stamp: int
    nbytes: int
    reason: str = ""

    def packed(self) -> Tensor:
        text = self.reason.encode(errors="replace")[:REASON_BYTES].ljust(REASON_BYTES, b"\0")
        return torch.frombuffer(bytearray(_HEAD_FORMAT.pack(self.stamp, self.nbytes, text)), dtype=torch.uint8)

    @classmethod
    def unpacked(cls, data: Tensor) -> "_Head":
        stamp, nbytes, text = _HEAD_FORMAT.unpack(bytes(data.tolist()))
        return cls(stamp, nbytes, text.rstrip(b"\0").decode(errors="replace"))


_HEAD_FORMAT = Struct(f"=QQ{REASON_BYTES}s")


@final
class MachineLinks:
    """machines: the ranks on each. group: gloo's, of the first ranks of all; None on other ranks."""

    def __init__(self, machines: Sequence[Sequence[int]], rank: int, group: Any, timeout_s: float) -> None:
        self.machines = [tuple(members) for members in machines]
        self.machine_of = {member: number for number, members in enumerate(self.machines) for member in members}
        self.machine = self.machine_of[rank]
        self._rank, self._group, self.timeout_s = rank, group, timeout_s
        self._busy = False
        """Whether an exchange is under way, or was when it failed."""
        self.awaited: tuple[int, ...] = ()
        """The ranks of the machine that an exchange under way is waiting for."""

    def exchange(self, tensors: Sequence[Sequence[Tensor]], stamp: int) -> Steps:
        """tensors: by machine. Those of this machine are sent to all others, and theirs received into place.

        gloo cannot be asked whether a transfer is done, so a thread waits for it: this rank has more to do meanwhile.
        """
        self._busy = True
        done = threading.Event()
        errors: list[Exception] = []

        def wait() -> None:
            try:
                self._exchange(tensors, stamp)
            except Exception as error:
                errors.append(error)
            done.set()

        threading.Thread(target=wait, name="unisono-exchange", daemon=True).start()
        while not done.is_set():
            yield
        for error in errors:
            raise error
        self._busy, self.awaited = False, ()

    def _exchange(self, tensors: Sequence[Sequence[Tensor]], stamp: int) -> None:
        group, here = self._group, self.machine
        deadline = time.monotonic() + self.timeout_s
        others = [number for number in range(len(self.machines)) if number != here]
        mine = _Head(stamp, _nbytes(tensors[here])).packed()
        heads = {other: torch.zeros_like(mine) for other in others}
        receives = [(other, group.recv([heads[other]], other, _HEAD)) for other in others]
        sends = [(other, group.send([mine], other, _HEAD)) for other in others]
        self._read_heads(receives, heads, {other: (stamp, _nbytes(tensors[other])) for other in others}, deadline)
        self._wait(sends, deadline)
        work = [(other, group.recv([_bytes(part)], other, _DATA)) for other in others for part in tensors[other]]
        work += [(other, group.send([_bytes(part)], other, _DATA)) for part in tensors[here] for other in others]
        self._wait(work, deadline)

    def _read_heads(
        self,
        receives: Sequence[tuple[int, Any]],
        heads: Mapping[int, Tensor],
        expected: Mapping[int, tuple[int, int]],
        deadline: float,
    ) -> None:
        """Raises what the others say is wrong, or that they say nothing; the former, if it is known, as the cause."""
        found, lost = dict[int, _Head](), list[CommError]()
        for transfer in receives:
            try:
                self._wait([transfer], deadline)
                found[transfer[0]] = _Head.unpacked(heads[transfer[0]])
            except CommError as error:
                lost.append(error)
                deadline = min(deadline, time.monotonic() + _LEAVE_S)
        for other, head in found.items():
            if head.stamp == _LEFT:
                raise CommError(
                    f"ranks {_listed(self.machines[other])} have left the process group: {head.reason}",
                    hint="see what they say themselves",
                    rank=self._rank,
                )
        for other, head in found.items():
            if head[:2] != expected[other]:
                raise Mismatch(
                    f"ranks {_listed(self.machines[other])} called another collective, or with other sizes, than "
                    f"ranks {_listed(self.machines[self.machine])}",
                    hint="call the same collectives, with equal arguments, in equal order, on every rank",
                    rank=self._rank,
                )
        if lost:
            raise lost[0]

    def _wait(self, work: Sequence[tuple[int, Any]], deadline: float) -> None:
        for other, transfer in work:
            self.awaited = self.machines[other]
            try:
                transfer.wait(timedelta(seconds=max(0.001, deadline - time.monotonic())))
            except RuntimeError as error:
                raise CommError(
                    f"the machine of ranks {_listed(self.machines[other])} does not answer: {first_line(error)}",
                    hint="a rank there has ended, or cannot be reached; see what it says itself",
                    rank=self._rank,
                ) from None

    def leave(self, reason: str) -> None:
        """Says to the other machines that this one will not come any more, unless something is under way with them:
        then they learn it from the end of the connection."""
        if self._group is None or self._busy:
            return
        head = _Head(_LEFT, 0, reason).packed()
        deadline = time.monotonic() + _LEAVE_S
        with suppress(CommError, RuntimeError):  # one that is gone already need not know
            others = [number for number in range(len(self.machines)) if number != self.machine]
            self._wait([(other, self._group.send([head], other, _HEAD)) for other in others], deadline)

    def close(self) -> None:
        self._group = None


def _nbytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.view(torch.uint8)


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))
