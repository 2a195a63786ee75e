"""Interval: how often something is to happen: every so many steps, epochs or seconds.

>>> Interval.parse("--snapshot-every", "2epochs")
Interval(steps=0, epochs=2, seconds=0.0)
"""

import re
from dataclasses import dataclass
from typing import final

from unisono.errors import UserError

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
