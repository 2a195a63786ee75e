"""Parameters that no shard of a step used: their gradient is not zero but missing, and optimizers must leave them be.

The one idea: update everything, and put back what should not have changed. It is rare, and exact. An optimizer that
counts steps (Adam) counts those of each parameter, as torch does, so it also needs to know how many a parameter has
missed so far; it then updates stretches of parameters that have missed as many.

    with left_alone([params, *state], ranges, unused): optimizer.update(params, gradient, state, ...)
    behind = behind_of(missed, number, unused, note=True)
    for low, high, late in stretches.of(behind): optimizer.update(params[low:high], ..., step=number - late)

What a parameter has missed is a row of a table of two: before step n it is row (n - 1) % 2, after it the other. So a
step can be done again.

Limits: replicas of `local`, which have a state of their own each, count the steps of all parameters together.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import final

import numpy as np

from unisono.strategies.contribution_stats import Ranges


@contextmanager
def left_alone(vectors: Sequence[np.ndarray], ranges: Ranges, unused: np.ndarray) -> Iterator[None]:
    """Chunks of equal length; `ranges` tells which elements are which parameter's, unused[parameter] whether to keep
    them. What weight decay and momentum would do to them does not happen."""
    kept = [
        (vector[low:high], vector[low:high].copy())
        for low, high, parameter in ranges
        if unused[parameter]
        for vector in vectors
    ]
    yield
    for place, values in kept:
        place[...] = values


def behind_of(missed: np.ndarray, number: int, unused: np.ndarray, *, note: bool) -> np.ndarray | None:
    """How many steps each parameter has missed before step `number`, -1 for one that misses this one, too; None: all
    have made every step. missed: (2, parameters); note: this rank fills in the row of the next step."""
    before = missed[(number - 1) % 2]
    if note:
        np.add(before, unused, out=missed[number % 2])
    return np.where(unused, -1, before) if unused.any() or before.any() else None


@final
class Stretches:
    """Of a chunk, whose elements are those of parameters as `ranges` tells."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges, self._key = ranges, b""
        self._found: list[tuple[int, int, int]] = []

    def of(self, behind: np.ndarray) -> list[tuple[int, int, int]]:
        """(low, high, steps missed) of neighbours that are alike; without those that miss this step. The same few
        parameters miss step after step, so the last answer is kept."""
        key = behind.tobytes()
        if key != self._key:
            self._key, self._found = key, []
            for low, high, parameter in self._ranges:
                late = int(behind[parameter])
                if late < 0:
                    continue
                alike = bool(self._found) and self._found[-1][1:] == (low, late)
                self._found.append((self._found.pop()[0] if alike else low, high, late))
        return self._found
