"""Which samples belong to which shard of which step: pure index arithmetic.

The one idea: a batch is cut into V shards, and V belongs to the run, not to the machines. Every function here is a
pure function of the run's numbers; the number of ranks only says who computes which shards, never what is in them.

>>> plan = ShardPlan(samples=10, batch=4, shards=2, seed=0)
>>> plan.steps_per_epoch, [plan.batch_samples(step) for step in range(3)], plan.shard_size
(3, [4, 4, 2], 2)
>>> [list(shards_of_rank(8, size=3, rank=rank)) for rank in range(3)]
[[0, 1, 2], [3, 4, 5], [6, 7]]

All shards have one size, because results depend on the shapes that kernels see: what does not fill the last shard of a
batch is one smaller shard, and those after it are empty. So V that does not divide the batch leaves shards idle: a
batch of 10 in 8 shards is five shards of 2.

Limits: the order of an epoch is held in memory, 8 bytes a sample, unless samples stay as they are.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

import numpy as np

from unisono.errors import UserError
from unisono.rng import generator


@final
@dataclass(frozen=True)
class ShardPlan:
    """How one run walks through its training samples. `batch` is the global one; "full" takes all samples at once."""

    samples: int
    batch: int | Literal["full"]
    shards: int
    seed: int
    drop_last: bool = False
    """Leave out the samples that do not fill the epoch's last batch."""

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise UserError(f"there are {self.samples} samples to train on", hint="give data with at least one row")
        if isinstance(self.batch, str) and self.batch != "full":
            raise UserError(f"the batch size is {self.batch!r}", hint="give a whole number, or full")
        if self.global_batch < 1:
            raise UserError(f"the batch size is {self.batch}", hint="give 1 or more, or full")
        if self.shards < 1:
            raise UserError(f"the number of shards is {self.shards}", hint="give 1 or more")
        if self.steps_per_epoch == 0:
            raise UserError(
                f"a batch of {self.global_batch} out of {self.samples} samples leaves no step when the last batch is "
                "dropped",
                hint=f"use a batch of {self.samples} or less, or keep the last batch",
            )

    @cached_property
    def global_batch(self) -> int:
        """Samples in a batch that is not the last."""
        return self.samples if isinstance(self.batch, str) else self.batch

    @cached_property
    def shard_size(self) -> int:
        """Samples in a shard that is not the last of its batch."""
        return -(-self.global_batch // self.shards)

    @cached_property
    def steps_per_epoch(self) -> int:
        whole, rest = divmod(self.samples, self.global_batch)
        return whole if self.drop_last or not rest else whole + 1

    def batch_samples(self, step: int) -> int:
        """Samples in the batch of `step` (0 to steps_per_epoch - 1 in every epoch)."""
        if not 0 <= step < self.steps_per_epoch:
            raise IndexError(f"step {step} of an epoch of {self.steps_per_epoch} steps")
        return min(self.global_batch, self.samples - step * self.global_batch)

    def live(self, step: int) -> int:
        """How many shards of a step are not empty."""
        return -(-self.batch_samples(step) // self.shard_size)

    @cached_property
    def epoch_samples(self) -> int:
        """Samples that an epoch uses."""
        return sum(self.batch_samples(step) for step in range(self.steps_per_epoch))

    def shard_samples(self, step: int, shard: int) -> int:
        """Samples in one shard of a step; 0 for those that the batch does not reach."""
        if not 0 <= shard < self.shards:
            raise IndexError(f"shard {shard} of {self.shards} shards")
        return min(self.shard_size, max(0, self.batch_samples(step) - shard * self.shard_size))

    def order(self, epoch: int) -> np.ndarray:
        """The samples in the order of this epoch: a new permutation (samples,) int64 for each."""
        return generator(self.seed, "shuffle", epoch).permutation(self.samples)

    def shard_indices(self, order: np.ndarray | None, step: int, shard: int) -> np.ndarray:
        """The samples of one shard, int64: a slice (a view) of `order`; None: they stay as they are."""
        count = self.shard_samples(step, shard)
        start = step * self.global_batch + min(shard * self.shard_size, self.batch_samples(step))
        return np.arange(start, start + count, dtype=np.int64) if order is None else order[start : start + count]


def shards_of_rank(shards: int, size: int, rank: int) -> range:
    """The shards that `rank` of `size` computes: contiguous, as equal as possible, the first ranks get one more."""
    if not 0 <= rank < size:
        raise IndexError(f"rank {rank} of {size} ranks")
    share, more = divmod(shards, size)
    start = rank * share + min(rank, more)
    return range(start, start + share + (rank < more))


def blocks(samples: int, block: int) -> list[slice]:
    """Fixed pieces for evaluation: `block` samples each, the last one smaller. No samples, no blocks."""
    if block < 1:
        raise UserError(f"the block size is {block}", hint="give 1 or more")
    return [slice(start, min(start + block, samples)) for start in range(0, samples, block)]
