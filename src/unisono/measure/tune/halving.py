"""Successive halving: all candidates for a short while, the better half for twice as long, and so on.

>>> scores = {"a": 1.0, "b": 3.0, "c": 2.0}
>>> halve(["a", "b", "c"], lambda one, seconds: scores[one], lambda one, seconds: True).best
'b'

The one idea: most candidates are so much worse than the best that a second tells; time is spent on those that are not.
Scores are higher for better ones, and of several the highest counts: what disturbs a measurement (other programs) only
ever makes it worse. Rounds go through the candidates there and back again.

Limits: candidates that differ by less than the noise of the machine are told apart by chance, and then it does not
matter.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar, final

T = TypeVar("T")

FIRST_S = 1.0
"""How long each candidate is measured in the first round."""
FEW = 3
"""So many are never halved: on a busy machine the first second of one may have been taken by others altogether."""
CLOSE = (0.5, 0.8, 0.9, 0.95)
"""By round: who is this close to the best stays, though half of the others may be better. After the last it ends."""


@final
@dataclass
class HalvingResult(Generic[T]):
    """What was found."""

    best: T | None = None
    scores: dict[T, list[float]] = field(default_factory=dict)
    """Of those that could be measured."""
    rounds: dict[T, int] = field(default_factory=dict)
    """How many rounds each took part in."""
    complete: bool = True
    """Whether there was time for everything."""

    def score(self, one: T) -> float:
        return max(self.scores[one])

    def ranked(self) -> list[T]:
        """The best first."""
        return sorted(self.scores, key=self.score, reverse=True)


def halve(
    candidates: Sequence[T], measure: Callable[[T, float], float | None], time_for: Callable[[T, float], bool]
) -> HalvingResult[T]:
    """measure(candidate, seconds) -> score, None if it cannot be run; time_for likewise: whether there is that much."""
    outcome: HalvingResult[T] = HalvingResult()
    left, seconds = list(candidates), FIRST_S

    def run(one: T) -> bool:
        """Whether there was time."""
        if not time_for(one, seconds):
            outcome.complete = False
            return False
        outcome.rounds[one] = outcome.rounds.get(one, 0) + 1
        found = measure(one, seconds)
        if found is not None:
            outcome.scores.setdefault(one, []).append(found)
        elif one in left:
            left.remove(one)
        return True

    for number, close in enumerate(CLOSE):
        order = list(left) if number % 2 == 0 else list(reversed(left))
        if not all(run(one) for one in order) or not left:
            break
        ranked = [one for one in outcome.ranked() if one in left]
        better = max(FEW, -(-len(ranked) // 2))
        near = close * outcome.score(ranked[0])
        left = [one for place, one in enumerate(ranked) if place < better or outcome.score(one) >= near]
        seconds = 2 * seconds
        if len(ranked) == 1:
            break  # nothing to compare it with
    outcome.best = next(iter(outcome.ranked()), None)
    return outcome
