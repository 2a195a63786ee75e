"""RoundSchedule: the rounds of a run and their numbers. Pure arithmetic, so that whoever joins later knows where
everybody is.

Every epoch has its steps and then a closing round (evaluation, records); after the last epoch, or after one that
stopped early, comes the final round. Positions count them from 1 and only grow.

>>> schedule = RoundSchedule(steps=3, epochs=2)
>>> [schedule.where(position) for position in range(1, 10)]
[(1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (2, 1), (2, 2), (2, 3), (3, 0)]
>>> schedule.after(4, stopped=False), schedule.after(4, stopped=True), schedule.final
(5, 9, 9)
"""

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class RoundSchedule:
    """`steps` of an epoch, `epochs` at most."""

    steps: int
    epochs: int

    @property
    def final(self) -> int:
        """The last round."""
        return (self.steps + 1) * self.epochs + 1

    def where(self, position: int) -> tuple[int, int]:
        """(epoch from 1, step from 0); step == steps is the closing round. The final round has an epoch of its own."""
        epoch, step = divmod(position - 1, self.steps + 1)
        return epoch + 1, step

    def position(self, epoch: int, step: int) -> int:
        """The opposite."""
        return (epoch - 1) * (self.steps + 1) + step + 1

    def after(self, position: int, *, stopped: bool) -> int:
        """The round after `position`; `stopped`: whether it closed an epoch that was the last one by early stopping."""
        return self.final if stopped else position + 1

    def steps_done(self, position: int) -> int:
        """How many steps of training are done when `position` is."""
        epoch, step = self.where(position)
        return min((epoch - 1) * self.steps + min(step + 1, self.steps), self.steps * self.epochs)
