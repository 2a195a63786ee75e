"""Counter: something that knows how much energy it has used. What all of them have in common.

The one idea: energy is a difference between two readings; whoever reads often enough (`follow`) never misses a counter
that starts again at zero, and gets the power of every interval for nothing.

    counter.follow(now); counter.joules; counter.watts

Limits: a counter that wraps twice between two readings loses the first turn.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class State:
    """How a device is doing, apart from energy; None: it does not tell."""

    utilisation: float | None = None
    """0 to 1."""
    memory_bytes: int | None = None
    temperature_c: float | None = None


class Counter(ABC):
    """Follows one part of a node: a processor's package, a GPU."""

    name: str
    """package-0, gpu 0."""
    kind: str
    """rapl or nvml."""
    joules: float = 0.0
    """Used since the first `follow`."""
    watts: float | None = None
    """The mean power between the last two; None before."""
    _then: float | None = None

    def follow(self, now: float) -> None:
        """Reads it; `now` is in seconds of any clock that does not go back."""
        if self._then is None:
            self._used(None, now)
        elif (seconds := now - self._then) > 0:
            used = self._used(seconds, now)
            self.joules += used
            self.watts = used / seconds
        self._then = now

    @abstractmethod
    def _used(self, seconds: float | None, now: float) -> float:
        """Joules since the last call, `seconds` ago; None: the first."""

    def state(self) -> State:
        """Of the device, where it tells."""
        return State()
