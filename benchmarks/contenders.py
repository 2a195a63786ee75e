"""Contender and their turns: what `training.py` knows of those it compares.

The one idea: a contender can be asked again and again to train for about so many seconds and to say how many samples a
second it managed, counted inside its ranks after a warm-up. Who is asked next rotates from round to round, so that
whatever else the machine does meanwhile falls on all of them.

    rates = take_turns([first, second], rounds=7, seconds=1.0)        # name -> samples/s of each round
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from statistics import median, quantiles
from typing import TypeAlias

Rates: TypeAlias = dict[str, list[float]]
"""Samples per second by the contender's name, one for each round."""


class Contender(ABC):
    """Somebody who trains when asked to."""

    name: str
    note: str = ""
    """What it chose for itself, after its first turn."""

    @abstractmethod
    def turn(self, seconds: float) -> float:
        """Samples per second over about `seconds`; the slowest rank's time counts."""


def take_turns(contenders: Sequence[Contender], rounds: int, seconds: float) -> Rates:
    """One round more than is counted: in the first everybody finds out how fast they are."""
    rates: Rates = {contender.name: [] for contender in contenders}
    for number in range(rounds + 1):
        first = number % max(1, len(contenders))
        for contender in [*contenders[first:], *contenders[:first]]:
            rate = contender.turn(seconds)
            if number:
                rates[contender.name].append(rate)
    return rates


def middle_half(values: Sequence[float]) -> tuple[float, float]:
    """The lower and the upper quartile."""
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, high


def ratio(rates: Rates, above: str, below: str) -> tuple[float, tuple[float, float]]:
    """How many times faster `above` is: the ratio of medians, and the middle half of the ratios of single rounds."""
    rounds = [high / low for high, low in zip(rates[above], rates[below], strict=True)]
    return median(rates[above]) / median(rates[below]), middle_half(rounds)
