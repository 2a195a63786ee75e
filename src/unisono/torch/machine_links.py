"""MachineLinks: the first ranks of several machines exchange tensors over gloo.

The one idea: only these ranks use the network in a collective, and what they send lies in the shared memory of their
machine, where it is sent from and received into without a copy.

    links = MachineLinks(machines=[(0, 1), (2, 3)], rank=0, group=gloo)
    links.exchange([[mine], [others]], stamp)          # on the first rank of each machine

Limits: every first rank sends its part to all others. With many machines an all-reduce sends more than a ring would.
"""

import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, final

import torch

from unisono.errors import CommError, Mismatch, first_line
from unisono.torch.calls import Tensor
from unisono.torch.machine_memory import Steps

_STAMP, _DATA = 1, 2


@final
class MachineLinks:
    """machines: the ranks on each. group: gloo's, of the first ranks of all; None on other ranks."""

    def __init__(self, machines: Sequence[Sequence[int]], rank: int, group: Any, timeout_s: float) -> None:
        self.machines = [tuple(members) for members in machines]
        self.machine_of = {member: number for number, members in enumerate(self.machines) for member in members}
        self.machine = self.machine_of[rank]
        self._rank, self._group, self.timeout_s = rank, group, timeout_s

    def exchange(self, tensors: Sequence[Sequence[Tensor]], stamp: int) -> Steps:
        """tensors: by machine. Those of this machine are sent to all others, and theirs received into place.

        gloo cannot be asked whether a transfer is done, so a thread waits for it: this rank has more to do meanwhile.
        """
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

    def _exchange(self, tensors: Sequence[Sequence[Tensor]], stamp: int) -> None:
        group, here = self._group, self.machine
        deadline = time.monotonic() + self.timeout_s
        others = [number for number in range(len(self.machines)) if number != here]
        mine = torch.tensor([stamp, sum(tensor.nbytes for tensor in tensors[here])])
        heads = {other: torch.zeros_like(mine) for other in others}
        work = [(other, group.recv([heads[other]], other, _STAMP)) for other in others]
        work += [(other, group.send([mine], other, _STAMP)) for other in others]
        self._wait(work, deadline)
        for other, head in heads.items():
            if int(head[0]) != stamp or int(head[1]) != sum(tensor.nbytes for tensor in tensors[other]):
                raise Mismatch(
                    f"ranks {_listed(self.machines[other])} called another collective, or with other sizes, than "
                    f"ranks {_listed(self.machines[here])}",
                    hint="call the same collectives, with equal arguments, in equal order, on every rank",
                    rank=self._rank,
                )
        work = [(other, group.recv([_bytes(part)], other, _DATA)) for other in others for part in tensors[other]]
        work += [(other, group.send([_bytes(part)], other, _DATA)) for part in tensors[here] for other in others]
        self._wait(work, deadline)

    def _wait(self, work: Sequence[tuple[int, Any]], deadline: float) -> None:
        for other, transfer in work:
            try:
                transfer.wait(timedelta(seconds=max(0.001, deadline - time.monotonic())))
            except RuntimeError as error:
                raise CommError(
                    f"the machine of ranks {_listed(self.machines[other])} does not answer: {first_line(error)}",
                    hint="a rank there has ended, or cannot be reached; see what it says itself",
                    rank=self._rank,
                ) from None

    def close(self) -> None:
        self._group = None


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.view(torch.uint8)


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))
