"""Amdahl's and Gustafson's laws, fitted to measured rates: how much of the work does not get faster with more ranks.

    law = amdahl([1, 1, 2, 2], [100.0, 102.0, 180.0, 184.0])        # ranks and samples/s of single runs
    law.serial, law.half_width, law.speed_up(16)

The one idea: both laws are straight lines, so that a fit needs no search. Amdahl: the time of a sample is T (s + (1 -
s)/n), a line over 1/n. Gustafson: the rate is X (s + (1 - s) n), a line over n. Serial is s = constant / (constant +
slope), the share of the time on one rank in Amdahl's, on n ranks in Gustafson's.

Limits: s is what the law makes of the points, waiting, memory and the operating system included; it may come out below
0 (better than linear, by cache or by chance). From two sizes a law cannot be seen to hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import final

from unisono.study.statistics import line_through


@final
@dataclass(frozen=True)
class Law:
    """One of the two, fitted."""

    name: str
    serial: float
    half_width: float
    """Half of the 95 % interval of `serial`; infinite if two single runs are all."""
    rate: float
    """Of one rank, samples/s."""
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
