"""gloo: a process group that torch's default group neither sees nor disturbs, and its messages as a wire for
`TaggedMessages`.

The one idea: the settings that gloo needs before it connects (its address, its time-out, its threads and connections),
and its error when a message fails, are handled here; the communicator only waits. gloo takes the first process that
connects for the rank that it expects; so, where the store has a secret, ranks prove it over each connection before
anything else is sent (`prove_pairs`).

    wire = GlooWire(rank, size, connect(store, rank, size, at="10.0.0.2", timeout_s=30), fail)

Limits: an error on starting a message is kept until the message is waited for; a transfer can be waited for once.
"""

import hmac
import secrets
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeAlias, final

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]  # public all the same

from unisono.comm.base import Array
from unisono.comm.gloo.kernel_settings import batch_scheduled_threads, kept_alive
from unisono.comm.gloo.store import secret_of
from unisono.comm.topology.authentication import MAC_BYTES, pair_proof
from unisono.errors import CommError

Fail: TypeAlias = Callable[[str, RuntimeError, list[int]], CommError]
"""fail(what, error, peers): what an error of torch means in what was done with these ranks."""

_TRIES, _LEAST_TRY_S = 5, 2.0
"""So often gloo tries to connect, each time for as long as its time-out; what a try needs at least on busy machines."""

_PROOF_SLOT = 1
"""Frames and the data of messages use others (`frames.py`)."""


def connect(store: Store, rank: int, size: int, at: str, timeout_s: float) -> Any:
    """The group, once all ranks have come; RuntimeError if they cannot. at: as in `TorchCommunicator`."""
    with batch_scheduled_threads(), kept_alive():
        gloo = dist.ProcessGroupGloo(PrefixStore("gloo", store), rank, size, _options(at, timeout_s))
    gloo._set_default_timeout(timedelta(seconds=timeout_s))
    prove_pairs(gloo, store, rank, size, timeout_s)
    return gloo


def prove_pairs(group: Any, store: Store, rank: int, size: int, timeout_s: float) -> None:
    """Returns when every other rank of a gloo group has proved, over its connection, that it knows the secret of the
    store, or if that has none; else a RuntimeError."""
    secret = secret_of(store)
    if secret is None:
        return
    store.set(f"nonce/{rank}", secrets.token_hex(32))
    keys = [f"nonce/{other}" for other in range(size)]
    store.wait(keys, timedelta(seconds=timeout_s))
    nonces = store.multi_get(keys)
    others = [other for other in range(size) if other != rank]

    def proof(sender: int, receiver: int) -> Array:
        found = pair_proof(secret, sender, receiver, nonces[sender] + nonces[receiver])
        return np.frombuffer(found, np.uint8).copy()

    deadline = time.monotonic() + timeout_s
    arriving = {other: np.zeros(MAC_BYTES, np.uint8) for other in others}
    receives = {other: group.recv([torch.from_numpy(arriving[other])], other, _PROOF_SLOT) for other in others}
    sends = [group.send([torch.from_numpy(proof(rank, other))], other, _PROOF_SLOT) for other in others]
    for other, work in receives.items():
        try:
            work.wait(timedelta(seconds=max(deadline - time.monotonic(), 0.001)))
        except RuntimeError as error:
            raise RuntimeError(
                f"rank {other} did not prove the secret over its connection; did somebody else take its place? {error}"
            ) from None
        if not hmac.compare_digest(arriving[other].tobytes(), proof(other, rank).tobytes()):
            raise RuntimeError(f"whoever connected as rank {other} does not know the secret")
    for work in sends:
        work.wait()


def try_s(timeout_s: float) -> float:
    """gloo's time-out with which it gives up to connect after `timeout_s`, or after 10 s if that is longer."""
    return min(timeout_s, max(timeout_s / _TRIES, _LEAST_TRY_S))


def _options(at: str, timeout_s: float) -> Any:
    options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # there all the same
    options._timeout = timedelta(seconds=try_s(timeout_s))
    # Without an address gloo takes what this machine's name resolves to, often 127.0.0.1, for the others as well.
    devices = dist.ProcessGroupGloo
    options._devices = [devices.create_device(hostname=at) if at else devices.create_default_device()]
    return options


@final
class GlooWire:
    """The messages of a group, for `TaggedMessages`. fail: what an error of torch in a call means, to those ranks."""

    def __init__(self, rank: int, size: int, group: Any, fail: Fail) -> None:
        self.rank, self.size = rank, size
        self.group = group
        self._fail = fail

    def send(self, data: Array, dest: int, slot: int) -> "_GlooTransfer":
        return _GlooTransfer(self._fail, self.group.send, (as_tensor(data), dest, slot), "a send to")

    def receive(self, data: Array, source: int, slot: int) -> "_GlooTransfer":
        return _GlooTransfer(self._fail, self.group.recv, (as_tensor(data), source, slot), "a receive from")


@final
class _GlooTransfer:
    """An error on starting counts in `wait`: what the peer sent before it ended can still be read."""

    def __init__(
        self, fail: Fail, start: Callable[..., dist.Work], where: tuple[torch.Tensor, int, int], verb: str
    ) -> None:
        tensor, self._peer, slot = where
        self._fail, self._verb = fail, verb
        self._work: dist.Work | None = None
        self._error: RuntimeError | None = None
        try:
            self._work = start([tensor], self._peer, slot)
        except RuntimeError as error:
            # Where it came from would keep the group, and its threads, beyond the communicator's end.
            self._error = error.with_traceback(None)

    def wait(self, deadline: float) -> None:
        try:
            if self._error is not None:
                raise self._error
            if self._work is not None:
                # A time-out of zero would mean none.
                self._work.wait(timedelta(seconds=max(deadline - time.monotonic(), 0.001)))
        except RuntimeError as error:
            self._error = error.with_traceback(None)  # also for a second wait
            raise self._fail(f"{self._verb} rank {self._peer}", error, [self._peer]) from error
        finally:
            self._work = None  # gloo would take a second wait for one for a second message


def as_tensor(array: Array) -> torch.Tensor:
    """The same memory as a tensor; a copy only of arrays that may not be written, which torch refuses."""
    if not array.flags.writeable:
        array = array.copy()
    if array.dtype.kind == "V":  # bfloat16, which NumPy does not know by itself
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
