"""Telling: what the first rank finds out alone, and everybody must know: a value, or why there is none.

The one idea: a failure is told like a value, so that nobody waits for a rank that has left.

    position = broadcast_from_first(comm, lambda: newest(folder).position)       # called by every rank of comm; the
    function by rank 0
    hosts = gather_objects(comm, socket.gethostname())                 # what each has to say, on every rank

Limits: what `messages/packing.py` takes, and messages of `UnisonoError`s; of any other exception the others hear its
name.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from unisono.comm.base import Communicator
from unisono.errors import UnisonoError
from unisono.messages.exchange import Failed, Succeeded
from unisono.messages.packing import pack, unpack


def broadcast_from_first(comm: Communicator, find: Callable[[], Any]) -> Any:
    """What `find` gives on rank 0, on every rank. If it fails there, every rank raises what it has to say."""
    news, failure = b"", None
    if comm.rank == 0:
        try:
            news = pack(Succeeded(find()))
        except Exception as error:  # the others wait to hear of it
            failure = error
            news = pack(failed(error, "rank 0: "))
    length = np.array([len(news)])
    comm.broadcast(length)
    words = np.frombuffer(news, np.uint8).copy() if comm.rank == 0 else np.zeros(int(length[0]), np.uint8)
    comm.broadcast(words)
    if failure is not None:
        raise failure
    found = unpack(words.tobytes())
    if isinstance(found, Failed):
        raise found.error()
    return found.value


def failed(error: Exception, whose: str = "") -> Failed:
    """What others are told of an error; whose: how it begins if it is not ours."""
    if isinstance(error, UnisonoError):
        return Failed.of(error)
    return Failed(UnisonoError.exit_code, f"{whose}{type(error).__name__}: {error}")


def gather_objects(comm: Communicator, value: Any) -> list[Any]:
    """The values of all ranks, on every rank."""
    news = pack(value)
    longest = np.array([len(news)])
    comm.all_reduce(longest, "max")
    words = np.frombuffer(news.ljust(int(longest[0])), np.uint8).copy()
    return [unpack(row.tobytes()) for row in comm.all_gather(words)]
