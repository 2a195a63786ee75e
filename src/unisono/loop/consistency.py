"""RankConsistency: what every rank of a user's own loop must have alike, in every step, and who has it not.

The one idea: each rank leaves a row of numbers in the arena before a meeting that takes place anyway, and looks at the
others' rows after it. So nobody waits for this, and it takes microseconds a step. Without it, ranks that were
given other batches or learning rates would train on, each as it was told, and nobody would know what came out.

    agreement.record_batch(terms, epoch, step, buffers)          # before READY
    agreement.check_batch()                                    # after it
    agreement.record_rates(lrs); ...; agreement.check_rates()    # before the update, after COMMIT

Limits: of data in memory 64 rows are looked at, of a dataset whose items are made its length alone. Learning rates are
compared when the update is done: what it left is not to be used.
"""

from collections.abc import Sequence
from typing import final

import numpy as np

from unisono.arena.membership.member import Member
from unisono.errors import UserError

_SAME = "give world.batches the same arguments on every rank, and go through the same batches"
_DATA = "give every rank the same data: seed whatever splits, shuffles or makes them (random_split has generator=)"
_HINTS = {
    "the number of samples": _DATA,
    "the batch size": _SAME,
    "the number of shards": _SAME,
    "the seed": _SAME,
    "shuffle": _SAME,
    "the data": _DATA,
    "the epoch": _SAME,
    "the step": _SAME,
    "what was written to buffers": "write the same on every rank; after model.eval() batch norm writes nothing",
    "the learning rates": "decide by what is the same on all ranks: batch.loss, not the loss of a shard",
}
"""What a row holds, in this order, and what to do about a difference."""
_HASHES = {"the data", "what was written to buffers", "the learning rates"}
WIDTH = len(_HINTS)


@final
class RankConsistency:
    """One rank's side. rows (size, WIDTH) int64: those of all ranks, in the arena."""

    def __init__(self, rows: np.ndarray, member: Member) -> None:
        self._rows, self._member = rows, member
        self._own = rows[member.slot]

    def record_batch(self, terms: Sequence[int], epoch: int, step: int, buffers: int) -> None:
        """terms: of `Batches.terms`; buffers: a hash of what was written to them, 0 for nothing."""
        self._own[: WIDTH - 1] = (*terms, epoch, step, buffers)

    def check_batch(self) -> None:
        """A `UserError` on every rank if the batches of two of them differ."""
        self._check(slice(0, WIDTH - 1))

    def record_rates(self, lrs: Sequence[float]) -> None:
        self._own[WIDTH - 1] = hash(tuple(lrs))

    def check_rates(self) -> None:
        """A `UserError` on every rank if two of them updated with other learning rates."""
        self._check(slice(WIDTH - 1, WIDTH))

    def _check(self, columns: slice) -> None:
        members = self._member.view.members  # rows of the dead are older
        first, *others = (self._rows[slot, columns] for slot in members)
        for slot, row in zip(members[1:], others, strict=True):
            if row.tobytes() == first.tobytes():
                continue
            names = list(_HINTS)[columns]
            number = int(np.flatnonzero(row != first)[0])
            values = "" if names[number] in _HASHES else f": {row[number]} against {first[number]}"
            raise UserError(
                f"rank {slot} differs from rank {members[0]} in {names[number]}{values}", hint=_HINTS[names[number]]
            )
