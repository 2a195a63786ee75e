"""RoundSchedule and Interval: the rounds of a run by number, and how often something is done. Pure arithmetic.

Every epoch has its steps and then a closing round (evaluation, records); after the last epoch, or after one that
stopped early, comes the final round. Positions count them from 1 and only grow, so a rank that joins later knows from a
position where the others are.

>>> schedule = RoundSchedule(steps=3, epochs=2)
>>> [schedule.where(position) for position in range(1, 10)]
[(1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (2, 1), (2, 2), (2, 3), (3, 0)]
>>> schedule.after(4, stopped=False), schedule.after(4, stopped=True), schedule.final
(5, 9, 9)

An `Interval` is a number of steps, epochs or seconds:

>>> Interval.parse("--snapshot-every", "2epochs")
Interval(steps=0, epochs=2, seconds=0.0)
"""

import re
from dataclasses import dataclass
from typing import final

from unisono.errors import UserError


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


_FORM = re.compile(r"(\d+(?:\.\d+)?) ?(steps?|epochs?|s|seconds?)")


@final
@dataclass(frozen=True)
class Interval:
    """One of the three is not 0; or none: never."""

    steps: int = 0
    epochs: int = 0
    seconds: float = 0.0

    @classmethod
    def parse(cls, option: str, text: str) -> "Interval":
        """From "500steps", "2epochs", "30s" or ""."""
        if not text:
            return cls()
        found = _FORM.fullmatch(text)
        if found is None or not float(found[1]) or ("." in found[1] and found[2] not in ("s", "second", "seconds")):
            raise UserError(
                f"{option} is {text!r}", hint="give a number above 0 and its unit: 500steps, 2epochs or 30s"
            )
        if found[2].startswith("st"):
            return cls(steps=int(found[1]))
        return cls(epochs=int(found[1])) if found[2].startswith("e") else cls(seconds=float(found[1]))

    def __bool__(self) -> bool:
        return bool(self.steps or self.epochs or self.seconds)

    def due(self, step: int) -> bool:
        """After this step, counted from 1 through the whole run."""
        return bool(self.steps) and step % self.steps == 0

    def due_after(self, epoch: int) -> bool:
        """After this epoch, counted from 1."""
        return bool(self.epochs) and epoch % self.epochs == 0
