"""TorchCommunicator: ranks connected by torch.distributed: gloo for arrays in memory, NCCL beside it on GPUs.

Its one idea: process groups of its own, made from a store, that torch's default group neither sees nor disturbs.
Messages, and the rows that ranks show on entering a collective (`comm/collective_check.py`), travel as frames
(`p2p.py`) over gloo (`process_group.py`), also beside NCCL; only then, with everybody there, torch's collective runs.
How ranks find each other before that is in `store.py`.

    torchrun --nproc_per_node 2 script.py     # in it: unisono.comm.gloo.communicator.world(rank, size).barrier()

Limits:
- `checked=False` leaves the rows out where data move: gloo's time-out stays, but nobody can say who is missing;
- after a time-out gloo closes all connections of this rank, so the others soon see it as lost;
- rank 0 serves the store (torchrun's agent does, under torchrun): without it no rank can connect or `split`;
- with `device="cuda:0"` the collectives that move data copy the array to that device, use NCCL and copy it back. This
  path follows torch's documentation but has never run: its authors had no GPU;
- gloo has threads of its own: where ranks keep all cores busy, each message waits for a time slice.
"""

from datetime import timedelta
from typing import Any, final

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]  # public all the same

from unisono.comm.base import ANY, DEFAULT_TIMEOUT_S, Array, Envelope, Request
from unisono.comm.checked_base import CheckedCommunicator, as_bytes
from unisono.comm.collective_check import Row, row
from unisono.comm.gloo.errors import read_gloo_error
from unisono.comm.gloo.p2p import TaggedMessages
from unisono.comm.gloo.process_group import GlooWire, as_tensor, connect
from unisono.comm.gloo.store import forget, open_store, prefixed
from unisono.comm.topology.rendezvous import RendezvousOptions, rank_names, unconnected
from unisono.errors import CommError, CommTimeout, UserError

_OPS = {
    "sum": dist.ReduceOp(dist.ReduceOp.SUM),
    "max": dist.ReduceOp(dist.ReduceOp.MAX),
    "min": dist.ReduceOp(dist.ReduceOp.MIN),
    "prod": dist.ReduceOp(dist.ReduceOp.PRODUCT),
}
_FLUSH_S = 5.0
"""How long `close` waits for receivers to take short messages that are still on their way."""


def world(
    rank: int,
    size: int,
    address: str | None = None,
    device: str = "cpu",
    timeout_s: float = DEFAULT_TIMEOUT_S,
    join: RendezvousOptions | None = None,
) -> "TorchCommunicator":
    """All ranks. Rank 0 serves the store at `address` ("host:port"); with None torch finds it, as under torchrun."""
    join = join or RendezvousOptions(main=host_of(address), timeout_s=timeout_s)
    store, at = open_store(rank, size, address, join)
    names = rank_names(store, size, join)  # now: whoever serves the store may give up first
    try:
        made = TorchCommunicator(store, rank, size, device, join.timeout_s, at=at)
    except CommError as error:
        raise unconnected(names, rank, join, error.summary) from error
    made.join_s = join.timeout_s
    made.wait_for_others(timeout_s)
    return made


def pair(store: Any, name: str, member: int, timeout_s: float, at: str) -> "TorchCommunicator":
    """Two ranks of a store alone, number 0 and 1. name: the same for both, and used once. at: see the class."""
    made = TorchCommunicator(prefixed(name, store), member, 2, "cpu", timeout_s, at=at)
    if member == 0:  # the other one has connected, too: of many pairs, what each needed would fill the store
        forget(name, store)
    return made


def host_of(address: str | None) -> str:
    """'[::1]:29500' -> '::1'."""
    return (address or "").rpartition(":")[0].strip("[]")


@final
class TorchCommunicator(CheckedCommunicator):
    """`store` is any torch store that all ranks reach, used for nothing else. Called by every rank."""

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        device: str = "cpu",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        *,
        checked: bool = True,
        at: str = "",
    ) -> None:
        """at: the address of this machine to listen on; if empty, what its host name resolves to."""
        super().__init__(rank, size, timeout_s, checked=checked)
        self._store, self.address = store, at
        self._splits = 0
        self._device = torch.device(device)
        self.transport = "gloo" if self._device.type == "cpu" else "nccl"
        try:
            store.set(f"here/{rank}", "1")
            gloo = connect(store, rank, size, at, timeout_s)
            self._group: Any = gloo if self.transport == "gloo" else self._connect_nccl()
        except RuntimeError as error:
            raise self._unconnected(error) from error
        self._wire = GlooWire(rank, size, gloo, self.fail)
        self._post = TaggedMessages(self._wire, timeout_s)
        # Nobody goes on, and perhaps ends the store, before everybody has connected.
        self._show("connecting", row("barrier"))

    def wait_for_others(self, timeout_s: float) -> None:
        """So long from now on, in everything; until now it was the time to connect."""
        self.timeout_s = timeout_s
        self._post.timeout_s = timeout_s
        for group in {self._wire.group, self._group}:
            group._set_default_timeout(timedelta(seconds=timeout_s))

    # -- point to point

    def isend(self, array: Array, dest: int, tag: int = 0) -> Request:
        self.check_message(array, dest, "dest", tag)
        return self._post.send(as_bytes(array), dest, tag, echo=True)

    def irecv(self, array: Array, source: int, tag: int = 0) -> Request:
        self.check_message(array, source, "source", tag)
        return self._post.receive(as_bytes(array), source, tag)

    def probe(self, source: int = ANY, tag: int = ANY) -> Envelope | None:
        self.check_source(source)
        return self._post.probe(source, tag)

    def send(self, array: Array, dest: int, tag: int = 0) -> None:
        self.check_message(array, dest, "dest", tag)
        self._post.send(as_bytes(array), dest, tag, echo=False).wait()

    def sendrecv(self, outgoing: Array, dest: int, incoming: Array, source: int, tag: int = 0) -> None:
        self.check_message(outgoing, dest, "dest", tag)
        arriving = self.irecv(incoming, source, tag)
        leaving = self._post.send(as_bytes(outgoing), dest, tag, echo=False)
        arriving.wait()
        leaving.wait()

    # -- groups

    def split(self, colour: int) -> "TorchCommunicator":
        colours = self.gather_colours(colour)
        members = [rank for rank in range(self.size) if colours[rank] == colours[self.rank]]
        self._splits += 1
        store = prefixed(f"split{self._splits}/{members[0]}", self._store)
        me = members.index(self.rank)
        device, join_s = str(self._device), min(self.join_s, self.timeout_s)
        made = TorchCommunicator(store, me, len(members), device, join_s, checked=self.checked, at=self.address)
        made.wait_for_others(self.timeout_s)
        made.join_s = self.join_s
        self.barrier()  # a group that is ready must not end the store while another one still connects
        return made

    def announce_failure(self, words: bytes) -> None:
        # Whatever the state: of several others, some may have left before.
        self._post.announce_failure(np.frombuffer(words, np.uint8), min(_FLUSH_S, self.timeout_s))

    def failure_notices(self) -> list[bytes]:
        return self._post.failure_notices()

    def close(self) -> None:
        if self.state != "closed":
            self._post.close(0.0 if self.state else min(_FLUSH_S, self.timeout_s))
            self._wire.group = self._group = None
            self.state = "closed"

    # -- what CheckedCommunicator needs

    def _show(self, what: str, mine: Row) -> list[Row]:
        return self._post.exchange(what, mine)

    def _reduce(self, flat: Array, op: str) -> None:
        options = dist.AllreduceOptions()
        options.reduceOp = _OPS[op]
        tensor = as_tensor(flat)
        there = tensor.to(self._device)
        self._finish("all_reduce", self._group.allreduce([there], options))
        self._bring_back(there, tensor)

    def _broadcast(self, data: Array, root: int) -> None:
        options = dist.BroadcastOptions()
        options.rootRank = root
        tensor = as_tensor(data)
        there = tensor.to(self._device)
        self._finish("broadcast", self._group.broadcast([there], options))
        self._bring_back(there, tensor)

    def _all_gather(self, data: Array, out: Array) -> None:
        tensors = as_tensor(out)
        there = tensors.to(self._device)
        self._finish("all_gather", self._group.allgather([list(there)], [as_tensor(data).to(self._device)]))
        self._bring_back(there, tensors)

    def _gather(self, data: Array, out: Array | None, root: int) -> None:
        options = dist.GatherOptions()
        options.rootRank = root
        mine = as_tensor(data).to(self._device)
        if out is None:
            self._finish("gather", self._group.gather([], [mine], options))
        else:
            tensors = as_tensor(out)
            there = tensors.to(self._device)
            self._finish("gather", self._group.gather([list(there)], [mine], options))
            self._bring_back(there, tensors)

    def _finish(self, what: str, work: dist.Work) -> None:
        try:
            work.wait()
        except RuntimeError as error:
            raise self.fail(what, error, []) from error
        finally:
            del work  # an error that somebody keeps would hold it, and with it gloo's threads

    def _bring_back(self, there: torch.Tensor, tensor: torch.Tensor) -> None:
        if there is not tensor:
            tensor.copy_(there)

    def fail(self, what: str, error: RuntimeError, peers: list[int]) -> CommError:
        """What an error of torch means; breaks the communicator."""
        failure = read_gloo_error(error)
        if failure.timed_out:
            return self.give_up(what, peers)
        self.state = f"broken: rank {self.rank} lost a connection in {what}"
        return CommError(
            f"{what} failed: {failure.reason}",
            hint="see what the other ranks say",
            rank=self.rank,
            peer_address=failure.address,
            reason=failure.reason,
        )

    def _connect_nccl(self) -> Any:
        if not dist.is_nccl_available():
            raise UserError(
                f"this torch has no NCCL for {self._device}", hint='use device="cpu" (gloo), or another torch'
            )
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=self.timeout_s)
        return dist.ProcessGroupNCCL(prefixed("nccl", self._store), self.rank, self.size, options)

    def _unconnected(self, error: RuntimeError) -> CommError:
        try:
            missing = [rank for rank in range(self.size) if not self._store.check([f"here/{rank}"])]
        except RuntimeError:
            return CommTimeout(
                f"the store is gone: {error}", missing=[0], hint="rank 0 serves it; it must stay", rank=self.rank
            )
        if missing:
            return self.give_up("connecting", missing)
        return CommError(
            f"all {self.size} ranks are there, but cannot connect: {error}",
            hint="host names that resolve to 127.0.0.1 do this; GLOO_SOCKET_IFNAME=eth0 names the network interface",
            rank=self.rank,
            reason=str(error),
        )
