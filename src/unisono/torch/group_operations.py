"""GroupOperations: what all methods of a process group start their operations with, and how ranks that are missing are
named.

    self.start(steps, "all_gather", opts, tensors)         # a Work

Limits: abstract; `process_group.py` has the class that torch gets.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work
from torch.distributed import Store  # type: ignore[attr-defined]  # public all the same

from unisono.comm.collective_check import late_ranks_error, lost_rank_error
from unisono.environment.os_environ import main_host
from unisono.errors import CommTimeout, UnisonoError, UserError, first_line
from unisono.resources import usable_cores
from unisono.torch.calls import Call, Tensor, call
from unisono.torch.collectives import Collectives
from unisono.torch.machine_memory import Steps
from unisono.torch.messages import GlooMessages, Messages, SharedMessages, Transfer
from unisono.torch.operation_queue import OperationQueue
from unisono.torch.rendezvous import connect
from unisono.torch.tensor_checks import (
    check_tensor,
    check_writable,
    flattened,
    room_for,
    write,
)
from unisono.torch.torch_errors import for_torch
from unisono.torch.work import DoneWork, Operation, seconds_of

_LAST_WORKS, _SMALL_BYTES = 256, 64
"""How many works of single numbers are kept."""

_GRACE_S = 0.5
"""How much later the other ranks of a machine give up than the first one, and messages over gloo than others."""
_LOST = "see what the launcher says about its end (killed? out of memory?), then start again from the last checkpoint"

_W = TypeVar("_W", bound=Work)

_TorchProcessGroup: Any = dist.ProcessGroup
"""torch's own types of it differ from version to version."""


class GroupOperations(_TorchProcessGroup):  # type: ignore[misc]  # see above
    """One rank's side of a process group."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        timeout_s = timeout.total_seconds()
        self.options = SimpleNamespace()  # torch writes into gloo's
        self._store, self._rank, self._size, self._timeout_s = store, rank, size, timeout_s
        self._pid = os.getpid()
        self._last_works: deque[Work] = deque(maxlen=_LAST_WORKS)
        self._group_name = self._group_desc = ""
        try:
            connected = connect(store, rank, size, timeout_s, main_host())
        except UnisonoError as error:
            raise for_torch(error) from None
        self._memory, self._links = connected.memory, connected.links
        # A first rank knows which other machine is late, and says so before the time of the others here is up.
        self._grace_s = _GRACE_S if self._links is not None and rank != self._memory.members[0] else 0.0
        self._collectives = Collectives(self._memory, self._links)
        self._messages: Messages = (
            SharedMessages(self._memory, timeout_s)
            if connected.messages is None
            else GlooMessages(connected.messages, rank, timeout_s)
        )
        self._queue = OperationQueue(
            self._look,
            self._late,
            self._messages.progress,
            self._leave,
            crowded=len(self._memory.members) > usable_cores(),
        )
        # Nobody needs the store any more when all have come here: rank 0, which may serve it, can leave then.
        self._start(self._collectives.barrier(call("init_process_group")), "init_process_group", None, []).wait()

    def shutdown(self) -> None:
        """Leaves; others that wait for this rank learn it at once."""
        if self._pid == os.getpid():
            self._queue.end("it was destroyed")
            self._last_works.clear()
            self._memory.close()
            self._messages.close()
            if self._links is not None:
                self._links.close()

    def abort(self) -> None:
        self.shutdown()

    # -- for methods

    def _is_usual(self, tensors: Sequence[Tensor]) -> bool:
        """One short tensor that lies in order: then little is left to do but to meet."""
        tensor = tensors[0]
        return (
            len(tensors) == 1
            and tensor.is_cpu
            and not tensor.is_sparse
            and tensor.is_contiguous()
            and not tensor.is_neg()
            and not tensor.is_conj()
            and self._collectives.is_short(tensor)
            and not tensor.is_inference()
        )

    def _at_once(
        self, begin: Callable[[Tensor, Any], Steps | None], tensor: Tensor, what: Any, opts: Any, timeout: Any = None
    ) -> Work:
        flat = tensor.data if tensor.dim() == 1 else flattened(tensor)
        name = begin.__name__.removesuffix("_now")
        queue = self._queue
        with queue.lock:
            queue.check_open()
            if not queue.idle:
                return self._start(self._later(begin, flat, what), name, opts, [tensor], timeout=timeout)
            try:
                rest = begin(flat, what)
                if rest is None:
                    return self._kept(DoneWork([tensor]), [tensor])
                return self._start(rest, name, opts, [tensor], timeout=timeout)
            except BaseException as error:  # a signal, too: others may have met this rank, which has not gone on
                queue.break_off(f"{name} was interrupted: {first_line(error) or type(error).__name__}", error)
                raise

    def _later(self, begin: Callable[[Tensor, Any], Steps | None], tensor: Tensor, what: Any) -> Steps:
        if (rest := begin(tensor, what)) is not None:
            yield from rest

    def _collective(
        self,
        make: Callable[[Tensor], Steps],
        tensors: Sequence[Tensor],
        written: Sequence[Tensor],
        name: str,
        opts: Any,
        timeout: Any = None,
    ) -> Operation:
        """The same for each of some tensors; those that are `written` get the result."""
        for tensor in written:
            if tensor.layout is torch.strided and not tensor.is_contiguous():
                check_writable(tensor)

        def steps() -> Steps:
            for tensor in tensors:
                flat = flattened(tensor)
                if written and flat.data_ptr() == tensor.data_ptr():
                    yield from make(flat)
                    continue
                flat = flat.clone()
                yield from make(flat)
                if written:
                    write(tensor, flat)

        return self._start(steps(), name, opts, list(tensors), timeout=timeout)

    def _scattered(self, whole: Tensor, target: Tensor, op: str) -> Steps:
        room = room_for(target)
        yield from self._collectives.reduce_scatter(whole, room, op)
        write(target, room)

    def _start(
        self, steps: Steps, name: str, opts: Any, tensors: Sequence[Tensor], result: Any = None, *, timeout: Any = None
    ) -> Operation:
        for tensor in tensors:
            check_tensor(tensor)
        background = bool(getattr(opts, "asyncOp", True))
        found = list(tensors) if result is None else result
        started = self._queue.start(steps, call(name), self._timeout(opts, timeout), found, background=background)
        started.deadline += self._grace_s
        return self._kept(started, tensors)

    def _kept(self, work: _W, tensors: Sequence[Tensor]) -> _W:
        """The same, and it lives on for a while. DDP's join() hands the work of a number to C++ and drops it: there a
        work whose Python object is gone is one of torch's own kind, which nobody will ever finish."""
        if len(tensors) == 1 and tensors[0].numel() == 1 and tensors[0].grad_fn is None:
            storage = tensors[0].untyped_storage()  # a view would keep all that it is a part of
            if storage.nbytes() <= _SMALL_BYTES:
                self._last_works.append(work)
        return work

    def _timeout(self, opts: Any, given: Any = None) -> float:
        """Seconds, as torch gave them in either place; the group's own otherwise."""
        wanted_s = seconds_of(given if isinstance(given, timedelta) else getattr(opts, "timeout", None))
        return wanted_s if wanted_s > 0 else self._timeout_s

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout_s = self._messages.timeout_s = timeout.total_seconds()
        if self._links is not None:
            self._links.timeout_s = self._timeout_s

    _set_default_timeout = set_timeout

    def _message(self, steps: Steps, text: Call, tensors: Sequence[Tensor], peers: Sequence[int]) -> Operation:
        return self._queue.start(steps, text, self._timeout_s, list(tensors), background=True, peers=peers)

    def _check_peer(self, rank: int, role: str) -> None:
        if not 0 <= rank < self._size or rank == self._rank:
            raise UserError(
                f"{role} {rank} of a message of rank {self._rank}", hint=f"0 to {self._size - 1}, and not this rank"
            )

    def _leave(self, reason: str) -> None:
        """The others learn it: those of this machine at once, other machines if this is its first rank."""
        self._memory.leave(reason)
        if self._links is not None and reason:
            self._links.leave(reason)

    def _look(self, operation: Operation) -> None:
        """A `RankLost` if a rank that a collective waits for has ended."""
        what = operation.call.text
        if gone := self._memory.lost():
            raise lost_rank_error(self._rank, what, gone, hint=_LOST)
        if left := self._memory.left():
            raise self._left_error(what, left)

    def _left_error(self, what: str, left: Sequence[int]) -> CommTimeout:
        reasons = "; ".join(filter(None, map(self._memory.reason_of, left)))
        return CommTimeout(
            f"rank {', '.join(map(str, left))} has left the process group and will not come to this {what}"
            f"{reasons and f': {reasons}'}",
            missing=left,
            hint="see what it says itself"
            if reasons
            else "every rank must call the same collectives, as often as the others",
            rank=self._rank,
        )

    def _late(self, operation: Operation) -> Exception:
        missing = self._memory.missing() if operation.peers is None else operation.peers
        option = "init_process_group(timeout=...)"
        if self._links is not None and operation.peers is None and not missing and (others := self._links.awaited):
            return CommTimeout(
                f"waited {operation.timeout_s:g} s in {operation.call.text}; of ranks {', '.join(map(str, others))}, "
                "which are on another machine, one or more did not arrive",
                missing=others,
                hint=f"see what they say themselves, or allow a longer wait with {option}",
                rank=self._rank,
            )
        return late_ranks_error(self._rank, operation.call.text, operation.timeout_s, missing, option=option)

    def _until(self, transfer: Transfer, called: Call, peers: Sequence[int]) -> Steps:
        """Returns when a message is through; raises if its other end has ended before, or left."""
        since_s = 0.0
        while not transfer():
            ended, left = self._memory.ended(), self._memory.gone()
            if lost := [peer for peer in peers if peer in ended or peer in left]:
                # gloo's thread may not have said yet that a message is through.
                since_s = since_s or time.monotonic()
                waited = self._links is None or time.monotonic() - since_s > _GRACE_S
                if waited and not transfer():
                    if gone := [peer for peer in lost if peer in ended]:
                        raise lost_rank_error(self._rank, called.text, gone, hint=_LOST)
                    raise self._left_error(called.text, lost)
            yield
