"""Strategy: what the trainer knows of how ranks work together on a step.

The one idea: a strategy is given this rank's shards of a batch and leaves new parameters; what was exchanged in
between, and when, is its own affair. The trainer is the same for all of them.

    strategy.start(rng)
    found = strategy.step(loader.groups(order, step, strategy.share(live)), live, samples, lr)
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from unisono.comm.base import Communicator
from unisono.data.loader import Group
from unisono.data.shards import shards_of_rank
from unisono.models.base import Noise

TIMES = ("data_s", "compute_s", "wait_s", "update_s")
"""Where a rank's time goes: loading, gradients, waiting for (and exchanging with) others, summing and updating."""


@final
@dataclass(frozen=True)
class StepResult:
    """What one step found: global sums, equal on every rank; and where this rank's time went."""

    loss_sum: float
    correct: float
    compute_s: float
    wait_s: float
    update_s: float


class Strategy(ABC):
    """One rank's side; called by every rank of `comm` in the same order."""

    comm: Communicator
    params: np.ndarray
    """(length or more,) float32: the parameters; beyond the model's length lies padding."""
    buffers: np.ndarray

    def share(self, live: int) -> range:
        """The shards that this rank computes when `live` of them are not empty."""
        return shards_of_rank(live, self.comm.size, self.comm.rank)

    @abstractmethod
    def start(self, rng: np.random.Generator) -> None:
        """Writes the starting values, equal on every rank."""

    @abstractmethod
    def step(
        self,
        groups: list[Group],
        live: int,
        samples: int,
        lr: float,
        noise: Noise | None = None,
        *,
        shares: bool = False,
    ) -> StepResult:
        """One global batch of `samples` in `live` shards; `groups` are this rank's. noise(shard) -> generator.

        shares: also find out what each rank contributed, for `contributions`.
        """

    @abstractmethod
    def contributions(self, counts: list[int]) -> np.ndarray:
        """(rank, parameter, contributions.FIELDS) of a step that was made with shares=True, before the next step.

        counts: the samples that each rank computed in it.
        """
