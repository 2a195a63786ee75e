"""The store: where ranks of torch.distributed find each other before anybody is connected to anybody.

Its one idea: whoever has come writes into a store that rank 0 serves (torchrun's agent does, under torchrun), and goes
on when all have come (`roll_call.py`): who is missing is known before gloo or NCCL could hang for want of it. torch is
called when there is somebody to talk to: while it tries in vain it fills the terminal with its own stack traces, and it
tries for twice the time that it was given.

    store, at = open_store(rank, size, "10.0.0.1:29500", Join(main="10.0.0.1"))

Limits: without the process that serves it nobody meets; it is open to whoever reaches the port (docs/security.md).
"""

from datetime import timedelta

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]  # public all the same
from torch.distributed.rendezvous import rendezvous

from unisono.comm.roll_call import Join, NotAllCame, call
from unisono.comm.route import no_answer
from unisono.errors import UserError


def open_store(rank: int, size: int, address: str | None, join: Join) -> tuple[Store, str]:
    """A store that all reach, when all have come, and this rank's address for the others. address: "host:port" of rank
    0; with None torch finds it, as under torchrun."""
    where = address or join.at
    if rank and where:
        host, port = _split(where)
        if reason := no_answer(host, port, join.timeout_s):
            raise _no_store(rank, where, join, f"{reason}, for {join.timeout_s:g} s")
    try:
        if address is None:
            store, _, _ = next(rendezvous("env://", rank, size, timeout=timedelta(seconds=join.timeout_s)))
        else:
            store = _serve_or_reach(address, rank, size, join.timeout_s)
        # A process may make several worlds in one store; every rank makes them in the same order.
        number = 1 if join.once else store.add(f"unisono/worlds/{rank}", 1)
    except (RuntimeError, ValueError) as error:
        raise _no_store(rank, where, join, str(error)) from error
    own = PrefixStore(f"unisono/{number}", store)
    return own, call(own, rank, size, join)


def _no_store(rank: int, where: str, join: Join, reason: str) -> NotAllCame:
    return NotAllCame(
        f"{join.noun} {rank}: no store at {where or 'the address that torch read from the environment'}: {reason}",
        missing=[0] if rank else [],
        hint=f"is {join.noun} 0 running on that host, and is the port its own? --join-timeout waits longer"
        if rank
        else "is the port free?",
    )


def _serve_or_reach(address: str, rank: int, size: int, timeout_s: float) -> TCPStore:
    host, port = _split(address)
    wait = timedelta(seconds=timeout_s)
    return TCPStore(host, port, size, rank == 0, wait, wait_for_workers=False, multi_tenant=True)


def _split(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdigit()):
        raise UserError(f"{address!r} is no address", hint='write "host:port", such as "10.0.0.1:29500"')
    return host.strip("[]"), int(port)
