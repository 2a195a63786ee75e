"""Telling: what the first rank finds out alone, and everybody must know: a value, or why there is none.

The one idea: a failure is told like a value, so that nobody waits for a rank that has left.

    position = told(comm, lambda: newest(folder).position)       # called by every rank of comm; the function by rank 0
    hosts = all_told(comm, socket.gethostname())                 # what each has to say, on every rank

Limits: JSON values, and messages of `UnisonoError`s; of any other exception the others hear its name.
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from unisono.comm.base import Communicator
from unisono.errors import UnisonoError, UserError


def told(comm: Communicator, find: Callable[[], Any]) -> Any:
    """What `find` gives on rank 0, on every rank. If it fails there, every rank raises what it has to say."""
    news, failure = b"", None
    if comm.rank == 0:
        try:
            news = json.dumps([0, find()]).encode()
        except Exception as error:  # the others wait to hear of it
            failure = error
            code = error.exit_code if isinstance(error, UnisonoError) else UnisonoError.exit_code
            text = str(error) if isinstance(error, UnisonoError) else f"rank 0: {type(error).__name__}: {error}"
            news = json.dumps([code, text]).encode()
    length = np.array([len(news)])
    comm.broadcast(length)
    words = np.frombuffer(news, np.uint8).copy() if comm.rank == 0 else np.zeros(int(length[0]), np.uint8)
    comm.broadcast(words)
    if failure is not None:
        raise failure
    code, value = json.loads(words.tobytes())
    if code:
        raise (UserError if code == UserError.exit_code else UnisonoError)(value)
    return value


def all_told(comm: Communicator, value: Any) -> list[Any]:
    """The values of all ranks, on every rank."""
    news = json.dumps(value).encode()
    longest = np.array([len(news)])
    comm.all_reduce(longest, "max")
    words = np.frombuffer(news.ljust(int(longest[0])), np.uint8).copy()
    return [json.loads(row.tobytes()) for row in comm.all_gather(words)]
