"""SerialCommunicator: a world of one rank, in which every collective is already done.

It lets code written for many ranks run unchanged on one, and checks arguments as strictly as the other backends do.

>>> comm = SerialCommunicator()
>>> x = np.arange(3.0)
>>> comm.all_reduce(x)
>>> x.tolist(), comm.all_gather(x).shape
([0.0, 1.0, 2.0], (1, 3))

Limits: there is nobody to send to, so `send` and `recv` are errors and `probe` finds nothing.
"""

from typing import final

import numpy as np

from unisono.comm.base import (
    ANY,
    DEFAULT_TIMEOUT_S,
    Array,
    Communicator,
    Envelope,
    Request,
    check_array,
    check_peer,
    reduction,
)
from unisono.comm.collective_check import check_colour, check_values, reduced_code
from unisono.errors import UserError


@final
class SerialCommunicator(Communicator):
    """See the module's docstring."""

    rank = 0
    size = 1
    transport = "serial"

    def __init__(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self.timeout_s = timeout_s

    def isend(self, array: Array, dest: int, tag: int = 0) -> Request:
        raise _alone("send to", dest)

    def irecv(self, array: Array, source: int, tag: int = 0) -> Request:
        raise _alone("receive from", source)

    def probe(self, source: int = ANY, tag: int = ANY) -> Envelope | None:
        return None

    def all_reduce(self, array: Array, op: str = "sum") -> None:
        check_array(array)
        reduced_code(array.dtype)
        reduction(op)

    def broadcast(self, array: Array, root: int = 0) -> None:
        check_array(array)
        check_peer(self, root, "root")

    def all_gather(self, array: Array) -> Array:
        check_array(array, writable=False)
        return np.stack([array])

    def gather(self, array: Array, root: int = 0) -> Array | None:
        check_peer(self, root, "root")
        return self.all_gather(array)

    def barrier(self) -> None:
        pass

    def agree(self, what: str, *values: int) -> None:
        check_values(values)

    def split(self, colour: int) -> "SerialCommunicator":
        check_colour(colour)
        return SerialCommunicator(self.timeout_s)

    def close(self) -> None:
        pass


def _alone(verb: str, peer: int) -> UserError:
    return UserError(f"cannot {verb} rank {peer}: this world has one rank", hint="start more ranks, or ask for `size`")
