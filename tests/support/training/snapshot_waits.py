"""Training that waits for its snapshots: small runs would be over while the first one is being written.

    with every_snapshot(): train(...)            # in this process, and so in every rank that it forks

The one idea: the first member, before it decides about the next snapshot, waits until the last one is written.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from unisono.arena.membership.halt_and_snapshot_requests import Requests
from unisono.arena.membership.protocol import REQUESTS

_WRITTEN, _DECIDED = REQUESTS + 2, REQUESTS + 4


@contextmanager
def every_snapshot() -> Iterator[None]:
    """None is skipped that is due."""
    real = Requests.decide

    def decide(requests: Requests, position: int, *, due: bool) -> None:
        words = requests._words
        while due and words[_WRITTEN] != words[_DECIDED]:
            os.sched_yield()
        real(requests, position, due=due)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Requests, "decide", decide)
        yield
