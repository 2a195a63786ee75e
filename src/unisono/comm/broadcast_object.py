"""Values between all ranks of a communicator: one that rank 0 computes, or one of each rank.

The one idea: a failure travels like a value. If rank 0 cannot compute the value, every rank raises, and none waits for
a rank that has left.

    position = broadcast_object(comm, lambda: newest(folder).position)     # every rank calls it, rank 0 computes
    hosts = gather_objects(comm, socket.gethostname())                     # the values of all ranks, on every rank

Limits: values that `messages/packing.py` can pack. Other ranks see the message of a `UnisonoError`; of any other
exception its type and text.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from unisono.comm.base import Communicator
from unisono.errors import UnisonoError
from unisono.messages.exchanger_orders import Failed, Succeeded
from unisono.messages.packing import pack, unpack


def broadcast_object(comm: Communicator, compute: Callable[[], Any]) -> Any:
    """The result of `compute` on rank 0, on every rank. If it fails there, every rank raises."""
    packed, failure = b"", None
    if comm.rank == 0:
        try:
            packed = pack(Succeeded(compute()))
        except Exception as error:  # the other ranks wait for the broadcast: they hear of it first
            failure = error
            packed = pack(failed(error, "rank 0: "))
    length = np.array([len(packed)])
    comm.broadcast(length)
    data = np.frombuffer(packed, np.uint8).copy() if comm.rank == 0 else np.zeros(int(length[0]), np.uint8)
    comm.broadcast(data)
    if failure is not None:
        raise failure
    message = unpack(data.tobytes())
    if isinstance(message, Failed):
        raise message.error()
    return message.value


def failed(error: Exception, whose: str = "") -> Failed:
    """An error as a message to other ranks. whose: a prefix for errors that are not a `UnisonoError`."""
    if isinstance(error, UnisonoError):
        return Failed.of(error)
    return Failed(UnisonoError.exit_code, f"{whose}{type(error).__name__}: {error}")


def gather_objects(comm: Communicator, value: Any) -> list[Any]:
    """The values of all ranks, on every rank."""
    packed = pack(value)
    longest = np.array([len(packed)])
    comm.all_reduce(longest, "max")
    data = np.frombuffer(packed.ljust(int(longest[0])), np.uint8).copy()
    return [unpack(row.tobytes()) for row in comm.all_gather(data)]
