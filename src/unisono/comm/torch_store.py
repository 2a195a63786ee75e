"""The store: where ranks of torch.distributed find each other before anybody is connected to anybody.

Its one idea: whoever has come writes into a store that rank 0 serves (torchrun's agent does, under torchrun), and goes
on when all have come (`roll_call.py`): who is missing is known before gloo or NCCL could hang for want of it.

    store, at = open_store(rank, size, "10.0.0.1:29500", Join(main="10.0.0.1"))

Limits: without the process that serves it nobody meets; it is open to whoever reaches the port (docs/security.md).
"""

from datetime import timedelta

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]  # public all the same
from torch.distributed.rendezvous import rendezvous

from unisono.comm.roll_call import Join, NotAllCame, call
from unisono.errors import UserError


def open_store(rank: int, size: int, address: str | None, join: Join) -> tuple[Store, str]:
    """A store that all reach, when all have come, and this rank's address for the others."""
    try:
        if address is None:
            store, _, _ = next(rendezvous("env://", rank, size, timeout=timedelta(seconds=join.timeout_s)))
        else:
            store = _serve_or_reach(address, rank, size, join.timeout_s)
        # A process may make several worlds in one store; every rank makes them in the same order.
        number = 1 if join.once else store.add(f"unisono/worlds/{rank}", 1)
    except (RuntimeError, ValueError) as error:
        raise NotAllCame(
            f"{join.noun} {rank}: no store at {address or 'the address that torch read from the environment'}: {error}",
            missing=[0] if rank else [],
            hint=f"is {join.noun} 0 running on that host, and is the port free?",
        ) from error
    own = PrefixStore(f"unisono/{number}", store)
    return own, call(own, rank, size, join)


def _serve_or_reach(address: str, rank: int, size: int, timeout_s: float) -> TCPStore:
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdigit()):
        raise UserError(f"{address!r} is no address", hint='write "host:port", such as "10.0.0.1:29500"')
    wait = timedelta(seconds=timeout_s)
    return TCPStore(host.strip("[]"), int(port), size, rank == 0, wait, wait_for_workers=False, multi_tenant=True)
