"""Link: two ranks and what lies between them: latency and bandwidth, each measured from both ends.

    found = meet(Link(comm, peer=1, patience_s=5.0), first=True, seconds=0.02)       # the other one: first=False

The one idea: one end asks, the other answers, then they change places. Latency is half a round trip of 8 bytes, the
median of several. Messages then double until one takes `seconds` there and back, three times; its bytes, by the least
time that it took without the round trip of the answer, are the bandwidth in that direction.

Limits: a link that lets a burst pass before it slows down looks faster than it is. Answers are waited for with
`patience_s` each; what is never answered is left to the communicator.
"""

import math
import os
import time
from dataclasses import dataclass
from statistics import median
from typing import final

import numpy as np

from unisono.arena.sync.waiting import wait_until
from unisono.comm.base import Array, Communicator, Request
from unisono.errors import CommTimeout

PINGS = 11
FIRST_BYTES, MOST_BYTES = 1 << 16, 1 << 23
_LOOKS = 3
"""How often a message that takes long is sent: something else may have taken the processor meanwhile."""
_LONG_S = 1.0
TAG = 2
_SPIN_S = 0.02
"""Longer than any usual round trip: sleeping would be measured, too."""


@final
@dataclass(frozen=True)
class Speed:
    """From one rank to another."""

    latency_s: float
    bytes_per_s: float


@final
@dataclass(frozen=True)
class Link:
    """To the rank `peer` of `comm`. own: made for this pair alone, so that it may break."""

    comm: Communicator
    peer: int
    patience_s: float
    own: bool = False

    def send(self, data: Array) -> None:
        self._finish(self.comm.isend(data, self.peer, TAG))

    def receive(self, data: Array) -> None:
        self._finish(self.comm.irecv(data, self.peer, TAG))

    def _finish(self, request: Request) -> None:
        if self.own:
            request.wait()  # a wait inside the backend breaks the communicator when time is up, and is quicker
            return
        spin_until = time.monotonic() + min(_SPIN_S, self.patience_s)
        while not request.test():
            os.sched_yield()
            if time.monotonic() > spin_until:
                if not wait_until(request.test, self.patience_s):
                    raise CommTimeout(f"no answer within {self.patience_s:g} s", missing=[self.peer])
                return


def meet(line: Link, *, first: bool, seconds: float) -> Speed:
    """What this end measured. first: whether it asks first; the other end must not. Called by both."""
    if first:
        found = _ask(line, seconds)
        _answer(line)
    else:
        _answer(line)
        found = _ask(line, seconds)
    return found


def _ask(line: Link, seconds: float) -> Speed:
    word = np.zeros(1, np.int64)
    trips = [_trip(line, word, word) for _ in range(1 + PINGS)][1:]  # the first one may have to connect
    round_trip_s = median(trips)
    nbytes = FIRST_BYTES // 2
    took_s = 0.0
    while took_s < seconds and nbytes < MOST_BYTES:
        nbytes *= 2
        took_s = math.inf
        for _ in range(_LOOKS):
            line.send(np.array([nbytes]))
            took_s = min(took_s, _trip(line, np.zeros(nbytes, np.uint8), word))
            if took_s > _LONG_S or (took_s < seconds and nbytes < MOST_BYTES):
                break  # what came between hardly counts; or a longer one is next
    line.send(np.array([-1]))
    return Speed(round_trip_s / 2, nbytes / max(took_s - round_trip_s, took_s / 10))


def _trip(line: Link, outgoing: Array, incoming: Array) -> float:
    """Seconds from the start of a message to the end of its answer."""
    begun = time.perf_counter()
    line.send(outgoing)
    line.receive(incoming)
    return time.perf_counter() - begun


def _answer(line: Link) -> None:
    """To what `_ask` sends: 0 is a ping, more announces so many bytes, less is the end."""
    word = np.zeros(1, np.int64)
    while True:
        line.receive(word)
        if word[0] < 0:
            return
        if word[0] > 0:
            line.receive(np.empty(int(word[0]), np.uint8))
        line.send(np.zeros(1, np.int64))
