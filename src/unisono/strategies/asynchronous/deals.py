"""Deals: which worker computes which batches of an epoch; every batch once, whoever dies.

The one idea: batches that nobody holds are in queues, one a worker (`static`) or one for all (`dynamic`, which relieves
a slow worker), and a worker is given the next when it asks.

>>> deal = Deal("static", range(5), workers=[3, 4])
>>> [deal.next(3), deal.next(3), deal.next(3), deal.next(3)], deal.left
([0, 1, 2, None], 2)

After a death a new deal is made of what is neither done nor held by the living.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import final

from unisono.data.shards import shards_of_rank
from unisono.errors import unknown_name

DEALS = ("static", "dynamic")


def check(name: str) -> None:
    """A `UserError` for what is not in the table."""
    if name not in DEALS:
        raise unknown_name("--deal", name, DEALS)


@final
class Deal:
    """`batches` are dealt to `workers`; static: contiguous, as equal as possible, one more to the first of them."""

    def __init__(self, how: str, batches: Sequence[int], workers: Sequence[int]) -> None:
        check(how)
        if how == "dynamic":
            common = deque(batches)
            self._queues = dict.fromkeys(workers, common)
        else:
            shares = (shards_of_rank(len(batches), len(workers), index) for index in range(len(workers)))
            self._queues = {
                worker: deque(batches[share.start : share.stop]) for worker, share in zip(workers, shares, strict=True)
            }

    @classmethod
    def planned(cls, queues: Mapping[int, Sequence[int]]) -> "Deal":
        """Each worker the batches that it had in another run, in their order."""
        deal = cls("static", (), tuple(queues))
        deal._queues = {worker: deque(batches) for worker, batches in queues.items()}
        return deal

    @property
    def left(self) -> int:
        """Batches that nobody has been given."""
        return sum(len(queue) for queue in {id(queue): queue for queue in self._queues.values()}.values())

    def next(self, worker: int) -> int | None:
        """A batch for `worker`; None if there is none for it."""
        queue = self._queues.get(worker)
        return queue.popleft() if queue else None
