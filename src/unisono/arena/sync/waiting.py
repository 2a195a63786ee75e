"""How a rank waits for another: spin, then yield, then sleep; and give up in time.

Two cores and eight ranks are the case that decides: a rank that spins there keeps the very rank from running for which
it waits. So a *crowded* world (more ranks than cores) yields at once. A wait that lasts (a slow rank, an
evaluation) ends up asleep, so that it costs neither energy nor the core of somebody who works.

    if not wait_until(lambda: words[0] >= n, timeout_s=5.0): ...        # False: time is up
"""

import os
import time
from collections.abc import Callable

SPINS = 300
"""Looks at a flag before the first yield in a world that is not crowded: about 10 microseconds."""

YIELD_S = 0.002
"""How long to yield before sleeping."""

_NAP_S = (0.00005, 0.001)


def wait_until(ready: Callable[[], bool], timeout_s: float) -> bool:
    """Yields, later sleeps, until `ready()`; False when `timeout_s` has passed first."""
    start = time.monotonic()
    nap = _NAP_S[0]
    while not ready():
        waited = time.monotonic() - start
        if waited < YIELD_S:
            os.sched_yield()
        elif waited < timeout_s:
            time.sleep(nap)
            nap = min(nap * 1.2, _NAP_S[1])
        else:
            return ready()
    return True
