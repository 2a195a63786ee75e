"""Medians with their spread, ratios of runs that belong together, straight lines with their uncertainty.

>>> spread_of([3.0, 1.0, 2.0])
Spread(median=2.0, low=1.0, high=3.0, count=3)

The one idea: no number without its spread. Of a few repeats that is the whole range, from the smallest to the largest;
a difference is told as one only if it has the same sign in every round. Intervals of fits are of 95 %, by Student's t.

Limits: repeats on one machine on one day: their spread says nothing of other machines and days.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, sqrt
from statistics import median
from typing import Any, final

import numpy as np

_STUDENT = (
    12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""The 97.5 % points for 1 to 30 degrees of freedom."""


@final
@dataclass(frozen=True)
class Spread:
    """What was measured several times."""

    median: float
    low: float
    high: float
    count: int

    @property
    def share(self) -> float:
        """Half the range, as a share of the median."""
        return (self.high - self.low) / 2 / abs(self.median) if self.median else 0.0


def spread_of(values: Sequence[float]) -> Spread:
    """Of at least one."""
    return Spread(median(values), min(values), max(values), len(values))


def paired(above: Mapping[Any, float], below: Mapping[Any, float]) -> Spread | None:
    """By round: the ratios of those in which both were measured; None if there is no such round.

    The range is that of single rounds. Instead of their median there is that of neighbours (geometric means), of which
    one went there and one back: of an odd number most went there, and a machine that grows slower would decide.
    """
    ratios = {int(at): above[at] / below[at] for at in above if below.get(at)}
    if not ratios:
        return None
    both_ways = [
        sqrt(ratios[first] * ratios[second]) for first, second in pairwise(sorted(ratios)) if (second - first) % 2
    ]
    middle = median(both_ways or ratios.values())
    return Spread(middle, min(ratios.values()), max(ratios.values()), len(ratios))


@final
@dataclass(frozen=True)
class Line:
    """y = constant + slope x, and how sure that is."""

    constant: float
    slope: float
    covariance: np.ndarray
    """(2, 2), of constant and slope."""
    freedom: int
    """Points beyond the two that make a line."""

    def share(self) -> tuple[float, float]:
        """(constant / (constant + slope), half of its 95 % interval); the latter infinite if two points are all."""
        total = self.constant + self.slope
        gradient = np.array([self.slope, -self.constant]) / total**2
        if self.freedom < 1:
            return self.constant / total, inf
        return self.constant / total, student(self.freedom) * sqrt(float(gradient @ self.covariance @ gradient))


def line_through(x: Sequence[float], y: Sequence[float]) -> Line | None:
    """The line with the least squares of relative errors; None without two different x, or where a y is not above 0.

    Relative, for that is what the noise of times is: a run twice as long is disturbed twice as much.
    """
    at, values = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if len(set(x)) < 2 or not (values > 0).all():
        return None
    rows = np.stack([np.ones_like(at), at], axis=1) / values[:, None]  # (point, 2), weighted by 1 / y
    inverse = np.linalg.inv(rows.T @ rows)
    found = inverse @ rows.sum(axis=0)
    freedom = len(at) - 2
    left = 1 - rows @ found
    variance = float(left @ left) / freedom if freedom else 0.0
    return Line(float(found[0]), float(found[1]), inverse * variance, freedom)


def student(freedom: int) -> float:
    """How many standard errors half a 95 % interval is."""
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    return 1.96 + 2.46 / freedom  # to 0.005, and no jump after the table
