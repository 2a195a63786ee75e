"""Medians with their spread, ratios of runs that belong together, straight lines, Amdahl's and Gustafson's laws.

    >>> spread_of([3.0, 1.0, 2.0])
    Spread(median=2.0, low=1.0, high=3.0, count=3)

    law = amdahl([1, 1, 2, 2], [100.0, 102.0, 180.0, 184.0])        # ranks and samples/s of single runs
    law.serial, law.half_width, law.speed_up(16)

The one idea: no number without its spread. For a few repeats that is the whole range, from the smallest to the largest;
a difference is reported as one only if it has the same sign in every round. Intervals of fits are of 95 %, by Student's
t.

Both laws are straight lines, so that a fit needs no search. Amdahl: the time of a sample is T (s + (1 - s)/n), a line
over 1/n. Gustafson: the rate is X (s + (1 - s) n), a line over n. Serial is s = constant / (constant + slope), the
share of the time on one rank in Amdahl's, on n ranks in Gustafson's.

Limits: repeats on one machine on one day: their spread says nothing of other machines and days. s is what the law makes
of the points, waiting, memory and the operating system included; it may come out below 0 (better than linear, by cache
or by chance). Two sizes cannot show whether a law holds.
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
    """The spread of at least one value."""
    return Spread(median(values), min(values), max(values), len(values))


def paired(above: Mapping[Any, float], below: Mapping[Any, float]) -> Spread | None:
    """The ratios of the rounds in which both were measured; None if there is no such round.

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


@final
@dataclass(frozen=True)
class Law:
    """One of the two laws, fitted."""

    name: str
    serial: float
    half_width: float
    """Half of the 95 % interval of `serial`; infinite if two single runs are all."""
    rate: float
    """The rate of one rank, samples/s."""
    error: float
    """The largest relative difference between a measured rate and the law."""
    sizes: int
    """Different numbers of ranks that went into it."""

    def speed_up(self, ranks: float) -> float:
        """Against one rank."""
        if self.name == "Gustafson":
            return self.serial + (1 - self.serial) * ranks
        return 1 / (self.serial + (1 - self.serial) / ranks)

    @property
    def limit(self) -> float:
        """The highest speed-up that there can be."""
        return inf if self.name == "Gustafson" or self.serial <= 0 else 1 / self.serial

    def ranks_at(self, efficiency: float) -> float:
        """Up to so many ranks each of them brings at least this share of what a lone one does; Amdahl's only."""
        return inf if self.serial <= 0 else 1 + (1 / efficiency - 1) / self.serial


def amdahl(ranks: Sequence[int], rates: Sequence[float]) -> Law | None:
    """From single runs of a problem of one size; None without two numbers of ranks."""
    return _fitted("Amdahl", ranks, rates, [1 / count for count in ranks], [1 / rate for rate in rates if rate > 0])


def gustafson(ranks: Sequence[int], rates: Sequence[float]) -> Law | None:
    """From single runs; made for problems that grow with the ranks."""
    return _fitted("Gustafson", ranks, rates, list(ranks), list(rates))


def _fitted(
    name: str, ranks: Sequence[int], rates: Sequence[float], x: Sequence[float], y: Sequence[float]
) -> Law | None:
    line = line_through(x, y) if len(x) == len(y) else None
    if line is None or line.constant + line.slope <= 0:
        return None
    serial, half_width = line.share()
    total = line.constant + line.slope
    law = Law(name, serial, half_width, total if name == "Gustafson" else 1 / total, 0.0, len(set(ranks)))
    errors = [abs(law.rate * law.speed_up(count) / rate - 1) for count, rate in zip(ranks, rates, strict=True)]
    return Law(name, serial, half_width, law.rate, max(errors), law.sizes)
