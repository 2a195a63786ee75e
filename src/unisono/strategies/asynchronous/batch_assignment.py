"""BatchAssignment: which worker computes which batches of an epoch: every batch is given out once in a deal.

The one idea: batches that nobody holds are in queues, one a worker (`static`) or one for all (`dynamic`, which relieves
a slow worker), and a worker is given the next when it asks.

>>> deal = BatchAssignment("static", range(5), workers=[3, 4])
>>> [deal.next(3), deal.next(3), deal.next(3), deal.next(3)], deal.left
([0, 1, 2, None], 2)

After a death a new deal is made of what is neither done nor held: those who live keep their shares, and what would have
been the others' goes to them in turn. Who gets what depends on who lives alone, not on what is done already: deals that
are made at different moments agree on everything that is left.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import final

from unisono.data.shards import shards_of_rank
from unisono.errors import unknown_name

DEALS = ("static", "dynamic")


def check(name: str) -> None:
    """A `UserError` for what is not in the table."""
    if name not in DEALS:
        raise unknown_name("--deal", name, DEALS)


@final
class BatchAssignment:
    """`batches` are dealt to `workers`; static: contiguous, as equal as possible, one more to the first of them.

    living: those of them, or others, who are there; taken: batches that nobody needs to be given.
    """

    def __init__(
        self,
        how: str,
        batches: Sequence[int],
        workers: Sequence[int],
        living: Sequence[int] | None = None,
        taken: Collection[int] = (),
    ) -> None:
        check(how)
        living = workers if living is None else living
        if how == "dynamic":
            common = deque(batch for batch in batches if batch not in taken)
            self._queues = dict.fromkeys(living, common)
        else:
            self._share_out(_divided(batches, workers), living, taken)

    @classmethod
    def planned(cls, shares: Mapping[int, Sequence[int]], taken: Collection[int] = ()) -> "BatchAssignment":
        """Each worker the batches that it had in another run, in their order."""
        deal = cls("static", (), ())
        deal._share_out(shares, tuple(shares), taken)
        return deal

    def _share_out(self, shares: Mapping[int, Sequence[int]], living: Sequence[int], taken: Collection[int]) -> None:
        orphans = [batch for worker, share in shares.items() if worker not in living for batch in share]
        self._queues = {}
        for turn, worker in enumerate(living):
            share = (*shares.get(worker, ()), *orphans[turn :: len(living)])
            self._queues[worker] = deque(batch for batch in share if batch not in taken)

    @property
    def left(self) -> int:
        """Batches that nobody has been given."""
        return sum(len(queue) for queue in {id(queue): queue for queue in self._queues.values()}.values())

    def next(self, worker: int) -> int | None:
        """A batch for `worker`; None if there is none for it."""
        queue = self._queues.get(worker)
        return queue.popleft() if queue else None


def _divided(batches: Sequence[int], workers: Sequence[int]) -> dict[int, Sequence[int]]:
    shares = (shards_of_rank(len(batches), len(workers), index) for index in range(len(workers)))
    return {worker: batches[share.start : share.stop] for worker, share in zip(workers, shares, strict=True)}
