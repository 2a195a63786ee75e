"""LoopCallbacks: who is asked at certain moments of the user's own loop. Usually nobody;
`runs/loop_checkpoint/checkpoint.py` is one.

The one idea: the loop knows the moments at which its state is one and the same everywhere; what is done at them (a copy
for a snapshot, an end that all ranks share, batches that were done before) is not its affair.

    for epoch in world.epochs(5):             # epochs
        for batch in world.batches(...):      # enter; then for each batch: judge, and before it is given: head
            for x, y in batch: ...            # open; at its end: settle, and when every gradient exists: ready
            optimizer.step()
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from unisono.loop.batches import Batch

GIVEN, PASSED, LEFT = range(3)
"""What becomes of a batch: it is given; it was done before, and is passed over; the loop was left before it came."""


class LoopCallbacks(ABC):
    """One rank's; every rank has one, and all are asked the same."""

    @property
    @abstractmethod
    def catching_up(self) -> bool:
        """Whether batches that a process before this one has done are still being passed over."""

    @abstractmethod
    def epochs(self, count: int) -> Iterator[int]:
        """A loop over `count` epochs begins: those that are not done."""

    @abstractmethod
    def begin_loop(self) -> None:
        """A loop over batches begins."""

    @abstractmethod
    def batch_status(self, terms: Sequence[int], epoch: int, step: int) -> int:
        """What becomes of the next batch, which a process before this one may have done: `GIVEN`, `PASSED`, `LEFT`.

        terms: what tells the batches of this loop from those of another (`Batches.terms`).
        """

    @abstractmethod
    def before_batch(self) -> None:
        """A batch is about to be given: all that follows the step before it is done."""

    @abstractmethod
    def begin_round(self, position: int) -> None:
        """Round `position` begins, perhaps again with other members: nothing that is shared changes before READY."""

    @abstractmethod
    def before_ready(self, batch: "Batch") -> None:
        """This rank's gradients of a batch exist; it is about to meet the others."""

    @abstractmethod
    def after_ready(self, position: int) -> None:
        """Everybody's exist."""

    @abstractmethod
    def close(self) -> None:
        """The world is closed."""


@final
class NoCallbacks(LoopCallbacks):
    """Does nothing."""

    @property
    def catching_up(self) -> bool:
        return False

    def epochs(self, count: int) -> Iterator[int]:
        return iter(range(count))

    def begin_loop(self) -> None:
        pass

    def batch_status(self, terms: Sequence[int], epoch: int, step: int) -> int:
        return GIVEN

    def before_batch(self) -> None:
        pass

    def begin_round(self, position: int) -> None:
        pass

    def before_ready(self, batch: "Batch") -> None:
        pass

    def after_ready(self, position: int) -> None:
        pass

    def close(self) -> None:
        pass


NO_CALLBACKS = NoCallbacks()
