"""Messages between two ranks of a process group: through pipes in shared memory, or over gloo between machines.

    transfer = messages.send(flat, dest, tag); ...; transfer()        # True when it is done; moves what can be moved

Limits: with several machines all messages go over gloo, those inside a machine, too, so that a receive from any rank
has one place to look. Each has a thread there that waits for it, for gloo cannot be asked.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from datetime import timedelta
from typing import Any, TypeAlias, final

import torch

from unisono.arena.sync.pipe import Reader, Writer
from unisono.comm.base import ANY
from unisono.comm.collective_check import late_ranks_error
from unisono.comm.shm.p2p import Mailbox
from unisono.errors import CommError, CommTimeout, first_line
from unisono.torch.calls import Tensor
from unisono.torch.machine_memory import MachineMemory

Transfer: TypeAlias = Callable[[], bool]
"""Whether a message is through; raises if it failed."""


class Messages(ABC):
    """One rank's messages to and from the others of its group. Tensors are flat and contiguous."""

    timeout_s: float

    @abstractmethod
    def send(self, flat: Tensor, dest: int, tag: int) -> Transfer:
        """Starts to send."""

    @abstractmethod
    def receive(self, flat: Tensor, source: int, tag: int) -> Transfer:
        """Starts to receive."""

    @abstractmethod
    def receive_any(self, flat: Tensor, tag: int, found: list[int]) -> Generator[None, None, Transfer]:
        """The same from whichever rank is first: its number is put into `found`."""

    def progress(self) -> None:  # noqa: B027  (nothing to do is a good answer)
        """Moves what can be moved."""

    def close(self) -> None:  # noqa: B027
        """Ends them."""


@final
class SharedMessages(Messages):
    """On one machine."""

    def __init__(self, memory: MachineMemory, timeout_s: float) -> None:
        self._rank = rank = memory.rank
        peers = [peer for peer in memory.members if peer != rank]
        self._mail = Mailbox(
            rank,
            {peer: Writer(*memory.pipe(rank, peer)) for peer in peers},
            {peer: Reader(*memory.pipe(peer, rank)) for peer in peers},
            self._late,
            timeout_s,
            crowded=False,
        )
        self.timeout_s = timeout_s

    def _late(self, what: str, missing: list[int]) -> CommTimeout:
        return late_ranks_error(self._rank, what, self.timeout_s, missing)

    def send(self, flat: Tensor, dest: int, tag: int) -> Transfer:
        return self._mail.isend(_as_array(flat), dest, tag).test

    def receive(self, flat: Tensor, source: int, tag: int) -> Transfer:
        return self._mail.irecv(_as_array(flat), source, tag).test

    def receive_any(self, flat: Tensor, tag: int, found: list[int]) -> Generator[None, None, Transfer]:
        while (envelope := self._mail.probe(ANY, tag)) is None:
            yield
        found.append(envelope.source)
        return self.receive(flat, envelope.source, tag)

    def progress(self) -> None:
        self._mail.progress()


@final
class GlooMessages(Messages):
    """Over gloo's group of all ranks."""

    def __init__(self, group: Any, rank: int, timeout_s: float) -> None:
        self._group, self._rank, self.timeout_s = group, rank, timeout_s

    def send(self, flat: Tensor, dest: int, tag: int) -> Transfer:
        work = self._group.send([flat.view(torch.uint8)], dest, _gloo_tag(tag))
        return _GlooTransfer(work, self._rank, f"a send to rank {dest}", self.timeout_s)

    def receive(self, flat: Tensor, source: int, tag: int) -> Transfer:
        work = self._group.recv([flat.view(torch.uint8)], source, _gloo_tag(tag))
        return _GlooTransfer(work, self._rank, f"a receive from rank {source}", self.timeout_s)

    def receive_any(self, flat: Tensor, tag: int, found: list[int]) -> Generator[None, None, Transfer]:
        work = self._group.recv_anysource([flat.view(torch.uint8)], _gloo_tag(tag))
        transfer = _GlooTransfer(work, self._rank, "a receive from any rank", self.timeout_s)
        while not transfer():
            yield
        found.append(work._source_rank())
        return transfer

    def close(self) -> None:
        self._group = None


@final
class _GlooTransfer:
    """A message of gloo, and the thread that waits for it."""

    def __init__(self, work: Any, rank: int, what: str, timeout_s: float) -> None:
        self._work, self._rank, self._what = work, rank, what
        self._wait = timedelta(seconds=timeout_s)
        self._done = threading.Event()
        self._error: Exception | None = None
        threading.Thread(target=self._run, name="unisono-gloo-wait", daemon=True).start()

    def _run(self) -> None:
        try:
            self._work.wait(self._wait)
        except RuntimeError as error:
            self._error = CommError(
                f"{self._what} failed: {first_line(error)}", hint="see what the other rank says", rank=self._rank
            )
        self._done.set()

    def __call__(self) -> bool:
        done = self._done.is_set()
        if done and self._error is not None:
            raise self._error
        return done


def _gloo_tag(tag: int) -> int:
    return tag + 2  # those of this package are below 0


def _as_array(flat: Tensor) -> Any:
    return flat.view(torch.uint8).numpy()
