"""Divergence: a loss that is finite, and hopeless.

The one idea: a model that knows nothing but the targets can guess, and has a loss: ln(classes), or the variance
of the numbers. A network that is ten times worse than that and does not get better has lost its way; numbers that are
not finite end a run, these would not.

    watch = Divergence(guess_of(dataset), lr=100.0, epochs=3); watch.add(metrics)           # a warning, or nothing

Limits: a loss of the user's own making has no such guess; and what is less than ten times worse is not seen.
"""

import math
from collections.abc import Mapping
from typing import Any, final

from unisono.data.dataset import Dataset

TIMES_WORSE = 10.0


def guess_of(data: Dataset) -> float:
    """The loss of guessing; 0 if every target is the same."""
    return math.log(data.classes) if data.classes else float(data.train_y.var(0).sum())


@final
class Divergence:
    """Looks at the epochs of a run, and warns once."""

    def __init__(self, guess: float, lr: float, epochs: int) -> None:
        self._guess, self._lr, self._epochs = guess, lr, epochs
        self._before, self._warned = math.inf, False

    def add(self, metrics: Mapping[str, Any]) -> str:
        """A warning; empty if there is nothing to say. One that gets better may have begun badly: it has time."""
        loss, before = metrics["train_loss"], self._before
        self._before = loss
        parts = [part for part in ("validation", "test") if not math.isfinite(metrics.get(f"{part}_loss", 0.0))]
        if parts and not self._warned:
            self._warned = True
            return (
                f"Warning: the training diverges: after epoch {metrics['epoch']} the {parts[0]} loss is not finite, "
                f"though the weights are.\nHINT: lower --lr ({self._lr:g}), or use --clip 1 or --warmup-epochs 1"
            )
        better = loss < before and metrics["epoch"] < self._epochs
        if self._warned or not self._guess or loss <= TIMES_WORSE * self._guess or better:
            return ""
        self._warned = True
        return (
            f"Warning: the training diverges: the train loss of epoch {metrics['epoch']} is {loss:.3g}, and guessing "
            f"has {self._guess:.3g}.\nHINT: lower --lr ({self._lr:g}), or use --clip 1 or --warmup-epochs 1"
        )
