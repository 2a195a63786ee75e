"""Ranks of the backend "unisono" as threads of this process: no interpreter has to start, and no port is needed.

results = in_ranks(3, lambda group: group.rank())                     # on one machine
results = in_ranks(4, work, machines=[(0, 1), (2, 3)])                # as if on two, over gloo on loopback
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from torch.distributed import HashStore, PrefixStore, Store

from unisono.torch import rendezvous
from unisono.torch.process_group import UnisonoProcessGroup

_place = threading.local()


def in_ranks(
    size: int,
    work: Callable[[UnisonoProcessGroup], Any],
    machines: Sequence[Sequence[int]] = (),
    timeout_s: float = 30.0,
    absent: Sequence[int] = (),
    store: Store | None = None,
) -> list[Any]:
    """What `work(group)` returns on each rank, or the error that it raises. absent: ranks that never join. store: one
    that may have served others before."""
    store = store or HashStore()
    machine_of = {rank: number for number, ranks in enumerate(machines or [range(size)]) for rank in ranks}

    def rank_main(rank: int) -> Any:
        if rank in absent:
            return None
        _place.machine = machine_of[rank]
        group = None
        try:
            group = UnisonoProcessGroup(PrefixStore("test", store), rank, size, timedelta(seconds=timeout_s))
            return work(group)
        except Exception as error:
            return error
        finally:
            if group is not None:
                group.shutdown()

    own = rendezvous.node_key()
    with (
        patch.object(rendezvous, "node_key", lambda: bytes([_place.machine]) + own[1:]),
        ThreadPoolExecutor(size) as pool,
    ):
        return list(pool.map(rank_main, range(size)))
